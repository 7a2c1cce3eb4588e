"""Traces of requests arrive at a real receiver of OTLP, parsed by the official protobuf classes.

`ci/opentelemetry.sh` fetches OpenTelemetry into a folder of its own; `make test-py` runs this file with
that folder in PYTHONPATH. Elsewhere the file is skipped.
"""

from __future__ import annotations

import re
import subprocess
import threading
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import forebay
import pytest
from conftest import Cluster, Minio, wait_until
from forebay_cluster import binary
from forebay_s3 import client as s3_client
from forebay_torch import MapDataset, observe

pytest.importorskip("opentelemetry.sdk", reason='PYTHONPATH="$(ci/opentelemetry.sh)" has OpenTelemetry')

from forebay_otlp import Receiver, Span, receiver, tree_of
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from torch.utils.data import DataLoader

SERVER, CLIENT = 2, 3
EXPORT_DEADLINE_S = 30.0
HEADER = "planted-header-of-the-collector"
OPEN_METRICS = "application/openmetrics-text"
EXEMPLAR = re.compile(r'(?m)^forebay_\w+_bucket\{.*\} \d+ # \{trace_id="([0-9a-f]{32})"\} [\d.e-]+')
OBJECTS = 12
BROKEN_BYTES, SENT_BYTES = 16 << 20, 6 << 20


@dataclass
class Traced:
    """A cluster and the receiver of its spans."""

    cluster: Cluster
    spans: Receiver
    minio: Minio

    def new_bucket(self) -> forebay.Bucket:
        """A bucket of MinIO with objects that the cluster has not read."""
        name, own = self.minio.new_bucket()
        for number in range(OBJECTS):
            own.put_object(Bucket=name, Key=f"train/{number}", Body=b"x" * 1000)
        return forebay.Client(self.cluster.endpoint, timeout=20).bucket(name, "s3")

    def tree(self, trace_id: str, is_whole: Callable[[list[Span]], bool]) -> list[Span]:
        """The spans of a trace, when they are whole and one tree."""

        def is_tree() -> bool:
            spans = self.spans.spans(trace_id)
            try:
                return bool(spans) and is_whole(spans) and bool(tree_of(spans))
            except AssertionError:
                return False

        try:
            wait_until(is_tree, "the trace is one tree", EXPORT_DEADLINE_S)
        except pytest.fail.Exception:
            spans = self.spans.spans(trace_id)
            shown = [(s.name, s.id, s.parent, s.resource.get("service.instance.id")) for s in spans]
            pytest.fail(f"the trace {trace_id} is not one whole tree: {shown}")
        return self.spans.spans(trace_id)


@contextmanager
def traced_cluster(folder: Path, minio: Minio, settings: str) -> Iterator[Traced]:
    """A cluster with these settings of [trace]. All that the receiver got is searched at the end."""
    headers = folder / "collector-headers"
    headers.write_text(f"authorization: Bearer {HEADER}\n")
    headers.chmod(0o600)
    with receiver(folder) as spans:
        config = folder / "trace.toml"
        config.write_text(
            f'[trace]\nendpoint = "{spans.endpoint}"\nheaders_file = "{headers}"\n{settings}'
        )
        options = ["--config", str(config)]
        running = Cluster.start(folder, targets=2, options=options, env=minio.env)
        try:
            yield Traced(running, spans, minio)
        finally:
            running.stop()
        # Of the cluster, not of this program's own exporter.
        headers_sent = [one.get("authorization") for one in spans.headers]
        assert f"Bearer {HEADER}" in headers_sent
        assert minio.env["AWS_SECRET_ACCESS_KEY"].encode() not in spans.file.read_bytes()


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory, minio: Minio) -> Iterator[Traced]:
    """A cluster that exports the traces that its clients sampled, and those of failed requests."""
    settings = "sample = 0.0\nslow_ms = 60000\n[download]\nallow_private = true\n"
    with traced_cluster(tmp_path_factory.mktemp("traced"), minio, settings) as running:
        yield running


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory, minio: Minio) -> Iterator[Traced]:
    """A cluster for which every request of more than 1 ms is slow."""
    with traced_cluster(tmp_path_factory.mktemp("slow"), minio, "slow_ms = 1\n") as running:
        yield running


@pytest.fixture(scope="module")
def tracer(traced: Traced) -> trace.Tracer:
    """A tracer of a training job, which sends its spans to the same receiver."""
    provider = TracerProvider(resource=Resource.create({"service.name": "training"}))
    exporter = OTLPSpanExporter(endpoint=traced.spans.traces_url)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return trace.get_tracer("training")


def is_backend_read(span: Span) -> bool:
    return span.kind == CLIENT and span.service == "forebay" and span.name == "backend get"


def path_of(span: Span, spans: list[Span]) -> list[Span]:
    """The span, its parent, and so on to the root."""
    by_id = {one.id: one for one in spans}
    path = [span]
    while path[-1].parent:
        path.append(by_id[path[-1].parent])
    return path


def id_of(span: trace.Span) -> str:
    return f"{span.get_span_context().trace_id:032x}"


def test_a_cold_batch_is_one_tree_from_the_sdk_over_the_targets_to_the_backend(
    traced: Traced, tracer: trace.Tracer
) -> None:
    bucket = traced.new_bucket()
    names = [f"train/{number}" for number in range(OBJECTS)]
    with tracer.start_as_current_span("step") as step:
        assert bucket.get_many(names) == [b"x" * 1000] * OBJECTS

    def is_whole(spans: list[Span]) -> bool:
        return sum(map(is_backend_read, spans)) >= OBJECTS

    spans = traced.tree(id_of(step), is_whole)
    read = set()
    for span in filter(is_backend_read, spans):
        path = path_of(span, spans)
        assert [one.name for one in path[-2:]] == ["forebay.batch", "step"]
        assert {one.service for one in path[-2:]} == {"training"}
        server = path[-3]
        assert (server.name, server.kind) == ("batch", SERVER)
        assert server.resource["forebay.role"] == "target"
        assert span.attributes["forebay.bucket"] == bucket.uri
        assert span.attributes["forebay.bytes"] == 1000
        assert all(one.start_ns <= span.start_ns <= span.end_ns <= one.end_ns for one in path[-2:])
        read.add(span.attributes["forebay.object"])
    assert read == set(names)
    nodes = {span.resource.get("service.instance.id") for span in spans if is_backend_read(span)}
    assert nodes == {node["id"] for node in traced.cluster.targets}


def test_the_reads_of_a_loaders_workers_are_in_the_trace_of_their_loop(
    traced: Traced, tracer: trace.Tracer
) -> None:
    bucket = traced.new_bucket()
    dataset = MapDataset(bucket, prefix_map={bucket: "train/"})
    inner = DataLoader(dataset, batch_size=3, num_workers=2)
    with tracer.start_as_current_span("epoch") as epoch:
        assert sum(1 for _ in observe(inner, feed=False)) == OBJECTS // 3

    def is_whole(spans: list[Span]) -> bool:
        return sum(map(is_backend_read, spans)) >= OBJECTS

    spans = traced.tree(id_of(epoch), is_whole)
    paths = [path_of(span, spans) for span in spans if is_backend_read(span)]
    assert all([one.name for one in path[-2:]] == ["forebay.loader_worker", "epoch"] for path in paths)
    assert {path[-2].attributes["forebay.worker"] for path in paths} == {0, 1}
    assert {path[0].attributes["forebay.object"] for path in paths} == {f"train/{n}" for n in range(OBJECTS)}


def test_a_single_read_and_a_write_are_trees_as_well(traced: Traced, tracer: trace.Tracer) -> None:
    bucket = traced.new_bucket()
    with tracer.start_as_current_span("step") as step:
        assert bucket.object("train/1").get().read_all() == b"x" * 1000
        assert bucket.object("train/1").get().read_all() == b"x" * 1000
        bucket.object("new").put(b"hello")

    def is_whole(spans: list[Span]) -> bool:
        return sum(span.kind == SERVER and span.name in ("get", "put") for span in spans) >= 3

    spans = traced.tree(id_of(step), is_whole)
    assert sum(map(is_backend_read, spans)) == 1, "the second read is warm"
    put = next(span for span in spans if span.name == "backend put")
    assert [one.name for one in path_of(put, spans)[-2:]] == ["forebay.put", "step"]


def test_a_request_that_nothing_chose_is_not_exported(traced: Traced, tracer: trace.Tracer) -> None:
    bucket = traced.new_bucket()
    bucket.object("train/2").get().read_all()
    bucket.get_many(["train/3"])
    assert bucket.object("train/2").get().read_all() == b"x" * 1000
    with tracer.start_as_current_span("step") as step:
        bucket.object("train/4").get().read_all()
    traced.tree(id_of(step), lambda spans: any(map(is_backend_read, spans)))
    mine = traced.spans.find(lambda span: span.attributes.get("forebay.bucket") == bucket.uri)
    assert {span.trace for span in mine} == {id_of(step)}


class FaultySite(BaseHTTPRequestHandler):
    """A web server with `broken`, which breaks off in the middle, and nothing else but errors."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        first, _, last = self.headers.get("range", "").removeprefix("bytes=").partition("-")
        begin, end = int(first or 0), int(last or BROKEN_BYTES - 1)
        self.close_connection = True
        if self.path != "/broken":
            self.send_error(500)
            return
        self.send_response(206 if first else 200)
        if first:
            self.send_header("content-range", f"bytes {begin}-{end}/{BROKEN_BYTES}")
        self.send_header("content-length", str(end - begin + 1))
        self.send_header("etag", '"1"')
        self.end_headers()
        self.wfile.write(bytes(max(0, min(end + 1, SENT_BYTES) - begin)))

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def faulty(traced: Traced) -> Iterator[forebay.Bucket]:
    """A bucket over that server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), FaultySite)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    words = ["mb", "ht://faulty", "--url", url, "--endpoint", traced.cluster.endpoint]
    subprocess.run([binary(), *words], check=True, timeout=60)
    yield forebay.Client(traced.cluster.endpoint, timeout=5).bucket("faulty", "ht")
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("name", ["absent", "broken"])
def test_the_trace_of_a_failed_request_is_exported_although_nobody_sampled_it(
    traced: Traced, faulty: forebay.Bucket, name: str
) -> None:
    # The answer to the request for `broken` has begun, with 200, when its backend breaks off.
    with pytest.raises(forebay.ForebayError):
        faulty.object(name).get().read_all()
    status = 200 if name == "broken" else 503
    wanted = {"forebay.object": name, "http.response.status_code": status}

    def answers() -> list[Span]:
        return traced.spans.find(
            lambda span: span.kind == SERVER and wanted.items() <= span.attributes.items()
        )

    wait_until(lambda: bool(answers()), "the span of the failed answer arrives", EXPORT_DEADLINE_S)
    answer = answers()[0]
    assert answer.is_error and answer.attributes["forebay.result"] == "error"
    spans = traced.tree(answer.trace, lambda spans: any(map(is_backend_read, spans)))
    reads = [span for span in spans if is_backend_read(span)]
    assert all(span.is_error for span in reads)
    assert {span.attributes["forebay.result"] for span in reads} == {"unavailable"}


def test_the_whole_trace_of_a_slow_request_is_exported_although_nobody_sampled_it(
    slow: Traced,
) -> None:
    bucket = slow.new_bucket()
    # A bucket of a cloud is known to S3 once it was used.
    assert len(bucket.list_snapshot()) == OBJECTS
    name = bucket.name
    own = s3_client(f"{slow.cluster.endpoint}/s3", signature_version="s3v4")
    url = own.generate_presigned_url("get_object", {"Bucket": name, "Key": "train/5"})
    with urllib.request.urlopen(url, timeout=20) as answer:
        assert answer.read() == b"x" * 1000

    def reads() -> list[Span]:
        return slow.spans.find(
            lambda span: is_backend_read(span) and span.attributes["forebay.object"] == "train/5"
        )

    wait_until(lambda: bool(reads()), "the backend's span arrives", EXPORT_DEADLINE_S)
    trace_id = reads()[0].trace

    def is_whole(spans: list[Span]) -> bool:
        roles = {span.resource["forebay.role"] for span in spans if span.kind == SERVER}
        return roles == {"gateway", "target"}

    spans = slow.tree(trace_id, is_whole)
    assert len({span.attributes["forebay.request_id"] for span in spans}) == 1
    sent = slow.spans.file.read_bytes()
    for secret in ("X-Amz-Signature", "X-Amz-Credential"):
        assert secret in url and secret.encode() not in sent
    signature = url.partition("X-Amz-Signature=")[2].partition("&")[0]
    assert len(signature) == 64 and signature.encode() not in sent


def test_histograms_have_exported_traces_as_exemplars_for_readers_of_openmetrics(
    traced: Traced, tracer: trace.Tracer
) -> None:
    bucket = traced.new_bucket()
    with tracer.start_as_current_span("step") as step:
        bucket.get_many([f"train/{number}" for number in range(OBJECTS)])
    traced.tree(id_of(step), lambda spans: any(map(is_backend_read, spans)))
    found = set()
    for node in traced.cluster.targets:
        kind, text = metrics(node["url"], OPEN_METRICS)
        assert kind.startswith(OPEN_METRICS) and text.endswith("# EOF\n")
        # Searched for secrets at the end.
        file = traced.cluster.folder / f"{node['id']}-{uuid.uuid4().hex}.metrics"
        file.write_text(text)
        found |= set(EXEMPLAR.findall(text))
        kind, text = metrics(node["url"], "text/plain")
        assert kind.startswith("text/plain") and "# {" not in text
    exported = {span.trace for span in traced.spans.spans()}
    assert id_of(step) in found and found <= exported


def metrics(url: str, accept: str) -> tuple[str, str]:
    """Media type and text of a node's metrics."""
    request = urllib.request.Request(f"{url}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(answer.headers["content-type"]), answer.read().decode()
