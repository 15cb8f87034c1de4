"""The events of a trace in Chrome's format, one at a time: a trace may be larger than the memory."""

import codecs
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_DECODER = json.JSONDecoder(strict=False)  # names of kernels may hold control characters
_LARGEST_EVENT = 16 << 20  # characters; beyond, what cannot be read is no event that goes on
_KEY = '"traceEvents"'
_BETWEEN = " \t\r\n,"


class TraceDamaged(ValueError):
    """The text is no trace, or ends in the middle of one."""


def events(chunks: Iterable[bytes]) -> Iterator[Mapping[str, Any]]:
    """Every event of a trace, in its order. Holds one chunk and one event at a time.

    The trace is an object with a list `traceEvents`, or that list alone. Raises TraceDamaged.
    """
    more = codecs.iterdecode(chunks, "utf-8", "replace")
    text, at = _opened(more)
    while True:
        text, at = _skipped(text, at, more)
        if text[at] == "]":
            return
        try:
            event, at = _DECODER.raw_decode(text, at)
        except json.JSONDecodeError as error:  # it goes on in the next chunk
            if len(text) - at > _LARGEST_EVENT:
                raise TraceDamaged(f"it holds an event that is no JSON: {error.msg}") from error
            text, at = text[at:] + _next(more), 0
            continue
        if isinstance(event, dict):
            yield event


def _opened(more: Iterator[str]) -> tuple[str, int]:
    """The text so far, and where its list of events begins."""
    text = next(more, "")
    while (at := _list_start(text)) is None:
        text += _next(more)
    return text, at


def _list_start(text: str) -> int | None:
    if text.lstrip()[:1] == "[":
        return text.index("[") + 1
    key = text.find(_KEY)
    opening = text.find("[", key + len(_KEY)) if key >= 0 else -1
    return opening + 1 if opening >= 0 else None


def _skipped(text: str, at: int, more: Iterator[str]) -> tuple[str, int]:
    """Past blanks and commas, to something that is there."""
    while True:
        while at < len(text) and text[at] in _BETWEEN:
            at += 1
        if at < len(text):
            return text, at
        text, at = _next(more), 0


def _next(more: Iterator[str]) -> str:
    for chunk in more:
        if chunk:
            return chunk
    raise TraceDamaged("it ends before its list of events does")
