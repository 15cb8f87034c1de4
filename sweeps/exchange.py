"""One request and its response over HTTP/1: from the bytes on the socket to a Request."""

from collections.abc import Callable
from dataclasses import dataclass

import httptools

from results.records import Request
from sweeps.stream import StreamParser, error_text, one_line

_REFUSAL_BYTES = 4096  # how much of an error body is kept


@dataclass(frozen=True, slots=True)
class Job:
    """One request to send: its prompt's name and class, and the ready JSON body."""

    prompt_id: str
    workload_class: str
    body: bytes


class Exchange:
    """One Job on its way. Times are of the client's monotonic clock, in seconds."""

    def __init__(self, job: Job, scheduled_s: float, sent_s: float) -> None:
        self.job = job
        self.scheduled_s = scheduled_s
        self.sent_s = sent_s
        self.first_byte_s: float | None = None
        self.ended_s = sent_s
        self.over = False
        self.stream = StreamParser()
        self._http = httptools.HttpResponseParser(self)
        self._read_s = sent_s  # arrival of the bytes being parsed
        self._status: int | None = None
        self._keep_alive = False
        self._framed = False  # the end of the body is marked, not only by the end of the connection
        self._message_complete = False
        self._refusal = b""
        self._failure: str | None = None

    @property
    def last_text_s(self) -> float:
        """Arrival of the last text so far, 0.0 if there was none."""
        return self.stream.chunk_s[-1] if self.stream.chunk_s else 0.0

    @property
    def reusable(self) -> bool:
        """Whether the connection can carry another request after this one."""
        return self._message_complete and self._keep_alive and self._failure is None

    def feed(self, at_s: float, data: bytes) -> None:
        """Take bytes of the response that arrived at `at_s`."""
        self._read_s = at_s
        if self.first_byte_s is None:
            self.first_byte_s = at_s
        try:
            self._http.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._keep_alive = False
            if not self._message_complete:
                self.fail(at_s, f"malformed HTTP response: {error}")
        if self._message_complete or (self.stream.done and not self._framed):
            self._end(at_s)

    def connection_lost(self, at_s: float, error: Exception | None) -> None:
        """The connection ended before the response was seen to end."""
        if self._status is not None and not self._framed and error is None:
            self._message_complete = True
        elif self.first_byte_s is None:
            self._failure = "connection reset" if error else "connection closed without a response"
        else:
            self._failure = "stream cut: connection reset" if error else "stream cut"
        self._end(at_s)

    def fail(self, at_s: float, error: str) -> None:
        """End it from our side, with the reason."""
        self._failure = error
        self._end(at_s)

    def request(self, origin_s: float, without_secrets: Callable[[str], str]) -> Request:
        """The record, with times since `origin_s` and nothing secret in the text of its error."""
        stream, error = self.stream, self._error()
        return Request(
            prompt_id=self.job.prompt_id,
            workload_class=self.job.workload_class,
            scheduled_s=self.scheduled_s - origin_s,
            sent_s=self.sent_s - origin_s,
            first_byte_s=None if self.first_byte_s is None else self.first_byte_s - origin_s,
            chunk_s=tuple([at_s - origin_s for at_s in stream.chunk_s]),
            ended_s=self.ended_s - origin_s,
            prompt_tokens=stream.prompt_tokens,
            output_tokens=stream.output_tokens,
            finish_reason=stream.finish_reason,
            error=None if error is None else one_line(without_secrets(error)),
            text=stream.text,
            reasoning_text=stream.reasoning_text,
            text_channels=stream.text_channels,
            engine_stats=stream.engine_stats,
        )

    def on_message_begin(self) -> None:
        if self._message_complete:  # more bytes than were asked for
            self._keep_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._framed |= name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        if self._message_complete:
            return
        self._status = self._http.get_status_code()
        self._keep_alive = self._http.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        if self._message_complete:
            return
        if self._status == 200:
            self.stream.feed(self._read_s, body)
        else:
            self._refusal = (self._refusal + body)[:_REFUSAL_BYTES]

    def on_message_complete(self) -> None:
        if self._status is not None and self._status >= 200:  # below: interim, the answer follows
            self._message_complete = True

    def _end(self, at_s: float) -> None:
        if not self.over:
            self.over = True
            self.ended_s = at_s
            self.stream.finish()
            del self._http  # it points back here: without the cycle memory is freed at once

    def _error(self) -> str | None:
        if self._status not in (None, 200):
            return f"HTTP {self._status}: {error_text(self._refusal)}"
        if self.stream.error:
            return self.stream.error
        if self.stream.complete:
            return None
        if self._failure:
            return self._failure
        if self.stream.output_tokens is not None:
            return None  # usage came, though not in an event of its own, and the response is whole
        return "stream cut" if self.stream.chunk_s else "no text in the response and no end of the stream"
