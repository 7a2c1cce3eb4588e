"""A receiver of OTLP over HTTP, for real: requests are parsed by the official protobuf classes.

It takes the spans of nodes and of programs alike. Needs the packages of `ci/opentelemetry.sh`.
"""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Status

__all__ = ["Receiver", "Span", "receiver", "tree_of"]

TRACES_PATH = "/v1/traces"
_PROTOBUF = "application/x-protobuf"


@dataclass(frozen=True)
class Span:
    """A span that arrived; ids are hexadecimal, `parent` is empty for a root."""

    trace: str
    id: str
    parent: str
    name: str
    kind: int
    start_ns: int
    end_ns: int
    is_error: bool
    attributes: Mapping[str, Any]
    # Attributes of what sent the span, such as service.name.
    resource: Mapping[str, Any]

    @property
    def service(self) -> str:
        return str(self.resource.get("service.name", ""))


@dataclass
class Receiver:
    """A running receiver."""

    endpoint: str
    # Every request as it came, for a search for secrets.
    file: Path
    headers: list[Mapping[str, str]] = field(default_factory=list)
    # Why requests were refused.
    problems: list[str] = field(default_factory=list)
    _spans: list[Span] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def traces_url(self) -> str:
        """Where a program's own exporter sends spans."""
        return self.endpoint + TRACES_PATH

    def spans(self, trace: str | None = None) -> list[Span]:
        """All spans so far, or those of one trace, in the order of their start."""
        with self._lock:
            spans = [span for span in self._spans if trace in (None, span.trace)]
        return sorted(spans, key=lambda span: span.start_ns)

    def find(self, is_wanted: Callable[[Span], bool]) -> list[Span]:
        return [span for span in self.spans() if is_wanted(span)]

    def take(self, body: bytes, headers: Mapping[str, str]) -> str | None:
        """Takes one request; why it is no request of OTLP, if it is none."""
        with self._lock, self.file.open("ab") as file:
            file.write(body + b"\n")
        if headers.get("content-type") != _PROTOBUF:
            return f"content-type is {headers.get('content-type')}"
        request = ExportTraceServiceRequest()
        try:
            request.ParseFromString(body)
        except DecodeError as error:
            return f"no ExportTraceServiceRequest: {error}"
        spans = list(_spans_of(request))
        for span in spans:
            if len(span.trace) != 32 or len(span.id) != 16 or len(span.parent) not in (0, 16):
                return f"ids of a wrong length: {span}"
            if not 0 < span.start_ns <= span.end_ns:
                return f"times without sense: {span}"
        with self._lock:
            self.headers.append(headers)
            self._spans += spans
        return None


def _spans_of(request: ExportTraceServiceRequest) -> Iterator[Span]:
    for of_resource in request.resource_spans:
        resource = _attributes(of_resource.resource.attributes)
        for of_scope in of_resource.scope_spans:
            for span in of_scope.spans:
                yield Span(
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.name,
                    span.kind,
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    span.status.code == Status.STATUS_CODE_ERROR,
                    _attributes(span.attributes),
                    resource,
                )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


@contextmanager
def receiver(folder: Path) -> Iterator[Receiver]:
    """A receiver on a free port; its file is in `folder`. Fails if a sender sent what is no OTLP."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            headers = {name.lower(): value for name, value in self.headers.items()}
            problem = None if self.path == TRACES_PATH else f"{self.path} is not {TRACES_PATH}"
            problem = problem or running.take(body, headers)
            if problem:
                running.problems.append(problem)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(400 if problem else 200)
            self.send_header("content-type", _PROTOBUF)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running = Receiver(f"http://127.0.0.1:{server.server_port}", folder / "spans.otlp")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert not running.problems, running.problems


def tree_of(spans: list[Span]) -> dict[str, list[Span]]:
    """The children of each span by its id. Fails unless the spans are one tree: one trace, one root,
    and every other span has its parent among them."""
    assert len({span.trace for span in spans}) == 1, spans
    ids = {span.id for span in spans}
    assert len(ids) == len(spans), "two spans with one id"
    roots = [span for span in spans if span.parent not in ids]
    assert len(roots) == 1 and roots[0].parent == "", [(span.name, span.parent) for span in roots]
    children: dict[str, list[Span]] = {span.id: [] for span in spans}
    for span in spans:
        if span.parent:
            children[span.parent].append(span)
    reached, left = 0, [roots[0]]
    while left:
        reached += 1
        left += children[left.pop().id]
    assert reached == len(spans), "spans that no path from the root reaches"
    return children
