"""Parser of an OpenAI-style event stream: body bytes with their arrival times in, what a Request needs out.

Nothing a server sends makes it raise: whatever cannot be read is recorded as the error of the stream.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import TypeGuard

import msgspec

_LINE_CHARS = 300  # a shown error is one line of at most this length
_ERROR_CHARS = 4096  # how much of an error is kept

_DONE = b"[DONE]"
_LF, _CR = b"\n\r"
_FIELD_NAME = re.compile(rb"[A-Za-z_][\w.-]*")
_FAILED_FINISHES = ("abort", "error")
_HUGE = 2.0**63  # no figure a server means is as large


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: msgspec.Raw = msgspec.Raw()


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    text: str | None = None  # completions
    finish_reason: str | None = None


class _PromptDetails(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Event(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: msgspec.Raw = msgspec.Raw()
    timings: msgspec.Raw = msgspec.Raw()  # llama.cpp
    sglext: msgspec.Raw = msgspec.Raw()  # SGLang
    metrics: msgspec.Raw = msgspec.Raw()  # vLLM


_NOTHING = _Event()
_decode = msgspec.json.Decoder(_Event).decode


class StreamParser:
    """Takes the body of one response piece by piece; `finish` once after the last piece."""

    def __init__(self) -> None:
        self.chunk_s: list[float] = []  # arrival of every event that carried text, of any channel
        self.prompt_tokens: int | None = None
        self.output_tokens: int | None = None
        self.finish_reason: str | None = None
        self.error: str | None = None  # the first thing that went wrong, as the server put it
        self.done = False  # [DONE] was seen
        self._channels: dict[str, None] = {}
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._stats: dict[str, msgspec.Raw] = {}  # the last top-level object of each name
        self._cached_tokens: int | None = None
        self._last_usage = False  # usage came in an event of its own, as the last event of a stream
        self._fresh = True  # between two events: nothing is pending below
        self._rest = b""  # an unfinished line
        self._after_cr = False  # a line feed that comes next belongs to the line before
        self._data: list[bytes] = []  # data lines of an unfinished event
        self._type = b""  # its type
        self._last_s = 0.0

    @property
    def complete(self) -> bool:
        """Whether the server said that the answer is over."""
        return self.done or self.finish_reason is not None or self._last_usage

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def reasoning_text(self) -> str:
        return "".join(self._reasoning)

    @property
    def text_channels(self) -> tuple[str, ...]:
        """Keys that carried text, in order of first use."""
        return tuple(self._channels)

    @property
    def engine_stats(self) -> dict[str, float]:
        """What the server says of this request beside OpenAI's fields, numbers only.

        Fields of `timings` (llama.cpp) have their own names, those of `sglext` (SGLang) and `metrics`
        (vLLM) their path, as in `metrics.speculative_decoding.num_drafts`, an item of a list its place.
        `cache_n` are the prompt tokens found in the prefix cache.
        """
        found = {} if self._cached_tokens is None else {"cache_n": float(self._cached_tokens)}
        for name, raw in self._stats.items():
            found |= _numbers("" if name == "timings" else name, _loads(bytes(raw)))
        return found

    def feed(self, at_s: float, piece: bytes) -> None:
        """Take the next bytes of the body, which arrived at `at_s`."""
        if self._fresh and piece.startswith(b"data: {") and piece.endswith(b"}\n\n"):
            payload = piece[6:-2]
            if _LF not in payload and _CR not in payload:  # one event, as nearly every read brings
                self._take_payload(at_s, payload)
                return
        if piece:
            self._take_lines(at_s, piece)

    def finish(self) -> None:
        """The body has ended. A last event without its blank line counts if it is whole."""
        if self._rest:
            self._take_line(self._last_s, self._rest)
        payload = b"\n".join(self._data).strip()
        if payload and (payload == _DONE or isinstance(_loads(payload), dict)):
            self._end_event(self._last_s)
        self._rest, self._data = b"", []

    def _take_lines(self, at_s: float, piece: bytes) -> None:
        self._last_s = at_s
        if self._after_cr:
            piece = piece.removeprefix(b"\n")
        lines = (self._rest + piece).splitlines(keepends=True)
        self._rest = b"" if not lines or lines[-1].endswith((b"\n", b"\r")) else lines.pop()
        self._after_cr = bool(lines) and not self._rest and lines[-1].endswith(b"\r")
        for line in lines:
            self._take_line(at_s, line.rstrip(b"\r\n"))
        self._fresh = not (self._rest or self._after_cr or self._data or self._type)

    def _take_line(self, at_s: float, line: bytes) -> None:
        name, _, value = line.removeprefix(b"\xef\xbb\xbf").partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            self._end_event(at_s)
        elif name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._type = value
        elif name == b"error":  # llama.cpp
            self._fail(f"server error: {error_text(value)}")
        elif name and not _FIELD_NAME.fullmatch(name):  # no name = comment, unknown name = ignored
            self._fail(f"malformed line: {_decoded(line)}")

    def _end_event(self, at_s: float) -> None:
        payload, type_ = b"\n".join(self._data), self._type
        self._data, self._type = [], b""
        if type_ == b"error":
            self._fail(f"server error: {error_text(payload)}")
        elif payload.strip():
            self._take_payload(at_s, payload)

    def _take_payload(self, at_s: float, payload: bytes) -> None:
        if self.done:
            return
        try:
            event = _decode(payload)
        except (msgspec.MsgspecError, RecursionError):
            event = self._odd_event(payload)
        carried = False
        for choice in event.choices or ():
            if choice.delta is not None and self._take_delta(choice.delta):
                carried = True
            if choice.text:
                self._text.append(choice.text)
                self._channels["text"] = None
                carried = True
            if choice.finish_reason:
                self._take_finish(choice.finish_reason)
        if carried:
            self.chunk_s.append(at_s)
        if event.usage is not None:
            self._take_usage(event.usage, alone=not event.choices)
        for name in ("timings", "sglext", "metrics"):
            if (raw := getattr(event, name)) and bytes(raw) != b"null":
                self._stats[name] = raw
        if event.error or not (event.choices or event.usage or event is _NOTHING):
            self._take_error(payload)

    def _odd_event(self, payload: bytes) -> _Event:
        """[DONE], fields of unexpected types, or no JSON at all."""
        if payload.strip() == _DONE:
            self.done = True
            return _NOTHING
        found = _loads(payload)
        if not isinstance(found, dict):
            self._fail(f"malformed event: {_decoded(payload)}")
            return _NOTHING
        return _lenient_event(found)

    def _take_delta(self, delta: _Delta) -> bool:
        """Keep its text; whether it carried any."""
        carried = False
        if delta.content:
            self._text.append(delta.content)
            self._channels["content"] = None
            carried = True
        if delta.reasoning_content:
            self._reasoning.append(delta.reasoning_content)
            self._channels["reasoning_content"] = None
            carried = True
        if delta.reasoning:
            if delta.reasoning != delta.reasoning_content:  # some servers send it under both keys
                self._reasoning.append(delta.reasoning)
            self._channels["reasoning"] = None
            carried = True
        if delta.tool_calls and bytes(delta.tool_calls) not in (b"null", b"[]"):
            self._channels["tool_calls"] = None
            carried = True
        return carried

    def _take_finish(self, reason: str) -> None:
        self.finish_reason = reason
        if reason in _FAILED_FINISHES:
            self._fail(f"server ended the request: {reason}")

    def _take_usage(self, usage: _Usage, *, alone: bool) -> None:
        """Usage may come with every chunk; the last one counts."""
        self._last_usage = alone
        if usage.prompt_tokens is not None and usage.prompt_tokens >= 0:
            self.prompt_tokens = usage.prompt_tokens
        if usage.completion_tokens is not None and usage.completion_tokens >= 0:
            self.output_tokens = usage.completion_tokens
        if usage.prompt_tokens_details is not None and usage.prompt_tokens_details.cached_tokens is not None:
            self._cached_tokens = usage.prompt_tokens_details.cached_tokens

    def _take_error(self, payload: bytes) -> None:
        event = _mapping(_loads(payload))
        if event.get("error") or event.get("object") == "error":
            self._fail(f"server error: {error_text(payload)}")

    def _fail(self, error: str) -> None:
        self.error = self.error or error[:_ERROR_CHARS]


def one_line(text: str) -> str:
    """Collapse white space, mask control characters and shorten, for an error text."""
    line = "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split()))
    return line if len(line) <= _LINE_CHARS else line[: _LINE_CHARS - 1] + "…"


def error_text(body: bytes) -> str:
    """The message in an error body: OpenAI's, FastAPI's and llama.cpp's forms, else the body as it is."""
    found = _loads(body)
    for key in ("error", "message", "detail"):
        if isinstance(found, dict) and found.get(key):
            found = found[key]
    return (found if isinstance(found, str) else _decoded(body)).strip() or "no message"


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _loads(raw: bytes) -> object:
    """Any JSON, leniently (NaN, broken UTF-8); None if it is none."""
    try:
        return json.loads(_decoded(raw))
    except (ValueError, RecursionError):
        return None


def _lenient_event(found: Mapping[str, object]) -> _Event:
    """What can be used of an event whose fields have unexpected types."""
    usage = found.get("usage")
    return _Event(
        choices=[_lenient_choice(c) for c in _sequence(found.get("choices")) if isinstance(c, dict)],
        usage=_lenient_usage(usage) if isinstance(usage, dict) else None,
        error=_raw(found.get("error")),
        timings=_raw(found.get("timings")),
        sglext=_raw(found.get("sglext")),
        metrics=_raw(found.get("metrics")),
    )


def _lenient_choice(found: Mapping[str, object]) -> _Choice:
    delta = _mapping(found.get("delta"))
    reason = found.get("finish_reason")
    reason = reason.get("type") if isinstance(reason, dict) else reason
    return _Choice(
        delta=_Delta(
            content=_lenient_text(delta.get("content")),
            reasoning_content=_lenient_text(delta.get("reasoning_content")),
            reasoning=_lenient_text(delta.get("reasoning")),
            tool_calls=_raw(delta.get("tool_calls")),
        ),
        text=_lenient_text(found.get("text")),
        finish_reason=_lenient_text(reason) or None,
    )


def _lenient_usage(found: Mapping[str, object]) -> _Usage:
    details = _mapping(found.get("prompt_tokens_details"))
    return _Usage(
        _count(found.get("prompt_tokens")),
        _count(found.get("completion_tokens")),
        _PromptDetails(_count(details.get("cached_tokens"))),
    )


def _lenient_text(value: object) -> str:
    """A string, or the texts of a list of content parts; lone surrogates replaced."""
    parts = value if isinstance(value, list) else [{"text": value}]
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "".join(t for t in texts if isinstance(t, str)).encode("utf-8", "replace").decode()


def _count(value: object) -> int | None:
    return int(value) if _is_finite_number(value) and value == int(value) else None


def _is_finite_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _HUGE


def _numbers(path: str, value: object) -> dict[str, float]:
    """Every number in a JSON value, by its path."""
    if _is_finite_number(value):
        return {path: float(value)}
    items = value.items() if isinstance(value, dict) else enumerate(_sequence(value))
    found: dict[str, float] = {}
    for key, inner in items:
        found |= _numbers(f"{path}.{key}" if path else str(key), inner)
    return found


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode()) if value else msgspec.Raw()


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _sequence(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()
