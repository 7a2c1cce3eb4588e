"""Loaders within a span of OpenTelemetry have a span for each batch, also those of worker processes.

`ci/opentelemetry.sh` fetches OpenTelemetry into a folder of its own; `make test-py` runs this file with
that folder in PYTHONPATH. Elsewhere the file is skipped.
"""

from __future__ import annotations

import gc
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from torch.utils.data import DataLoader, Dataset

import forebay
from forebay import _core
from forebay.spans import call_span
from forebay_torch import IterableDataset, MapDataset, ShardReader, ThreadLoader, observe
from shard_files import tar

pytest.importorskip("opentelemetry.sdk", reason='PYTHONPATH="$(ci/opentelemetry.sh)" has OpenTelemetry')

from forebay_spans import EXPORTER, tracer  # noqa: F401
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan

BATCH = "forebay.loader_batch"
WORKER = "forebay.loader_worker"


@pytest.fixture
def filled(bucket: forebay.Bucket) -> Iterator[forebay.Bucket]:
    bucket.put_many((f"train/{i:02}", b"x" * (i + 1)) for i in range(10))
    bucket.object("shards/0.tar").put(tar([(f"{i}.txt", b"text") for i in range(6)]))
    yield bucket


def traced(tracer: trace.Tracer, loader: Any) -> tuple[ReadableSpan, list[ReadableSpan]]:
    """Runs an epoch in a span; returns that span, and those that the loader made."""
    EXPORTER.clear()
    with tracer.start_as_current_span("epoch"):
        count = sum(1 for _ in loader)
    *made, epoch = EXPORTER.get_finished_spans()
    assert epoch.name == "epoch"
    batches = [span for span in made if span.name == BATCH]
    assert len(batches) == count
    assert all(span.context.trace_id == epoch.context.trace_id for span in made)
    parents = {span.context.span_id for span in [epoch, *batches]}
    assert all(span.parent is not None and span.parent.span_id in parents for span in made)
    assert all(batch.parent.span_id == epoch.context.span_id for batch in batches if batch.parent)
    return epoch, made


LOADERS: dict[str, Callable[[forebay.Bucket], Any]] = {
    "threads over a map": lambda b: ThreadLoader(dataset(b), 4, threads=2),
    "no threads over a map": lambda b: ThreadLoader(dataset(b), 4, threads=0),
    "threads over an iterable": lambda b: ThreadLoader(
        IterableDataset(b, prefix_map={b: "train/"}), 4, threads=2
    ),
    "threads over shards": lambda b: ThreadLoader(
        ShardReader(b, prefix_map={b: "shards/"}), 4, threads=1, collate_fn=list
    ),
    "an observed DataLoader": lambda b: observe(DataLoader(dataset(b), 4), feed=False),
    "another loader": lambda b: observe(dataset(b), feed=False),
}


def dataset(bucket: forebay.Bucket) -> MapDataset:
    return MapDataset(bucket, prefix_map={bucket: "train/"})


@pytest.mark.parametrize("kind", LOADERS)
def test_each_batch_of_an_epoch_has_a_span(
    filled: forebay.Bucket, tracer: trace.Tracer, kind: str
) -> None:
    _, made = traced(tracer, LOADERS[kind](filled))
    names = Counter(span.name for span in made)
    assert sum(names.values()) > names[BATCH], "the requests of the batches have spans, too"


def test_batches_count_their_samples(filled: forebay.Bucket, tracer: trace.Tracer) -> None:
    _, made = traced(tracer, ThreadLoader(dataset(filled), 4, threads=2))
    counts = [(span.attributes or {})["forebay.samples"] for span in made if span.name == BATCH]
    assert sorted(counts) == [2, 4, 4]


def test_a_last_batch_that_is_left_out_has_no_span(
    filled: forebay.Bucket, tracer: trace.Tracer
) -> None:
    samples = IterableDataset(filled, prefix_map={filled: "train/"})
    _, made = traced(tracer, ThreadLoader(samples, 4, threads=1, drop_last=True))
    assert sum(span.name == BATCH for span in made) == 2


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_batches_of_worker_processes_have_spans_below_those_of_their_workers(
    filled: forebay.Bucket, tracer: trace.Tracer, method: str
) -> None:
    context = multiprocessing.get_context(method)
    inner = DataLoader(dataset(filled), 4, num_workers=2, multiprocessing_context=context)
    EXPORTER.clear()
    with tracer.start_as_current_span("epoch"):
        assert sum(1 for _ in observe(inner, feed=False)) == 3
    made = EXPORTER.get_finished_spans()
    (epoch,) = [span for span in made if span.name == "epoch"]
    workers = [span for span in made if span.name == WORKER]
    batches = [span for span in made if span.name == BATCH]
    assert [(span.attributes or {})["forebay.worker"] for span in workers] == [0, 1]
    assert all(span.parent == epoch.context for span in workers)
    assert len(made) == 6 and len(batches) == 3
    for batch in batches:
        worker = workers[int((batch.attributes or {})["forebay.worker"])]  # type: ignore[arg-type]
        assert batch.parent == worker.context
        times = [worker.start_time, batch.start_time, batch.end_time, worker.end_time]
        assert times == sorted(times)  # type: ignore[type-var]
    samples = [(batch.attributes or {})["forebay.samples"] for batch in batches]
    assert samples == [4, 4, 2]


class Parents(Dataset[str | None]):
    """The span that a read of each sample would belong to."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> str | None:
        with call_span("forebay.get", "ais://b", str(index)):
            before = _core.swap_span_parent(None)
            _core.swap_span_parent(before)
            return before


def test_workers_that_stay_have_the_span_of_each_pass(tracer: trace.Tracer) -> None:
    inner = DataLoader(Parents(), 2, num_workers=2, persistent_workers=True, collate_fn=list)
    loader = observe(inner, feed=False)
    for name in ("first", "second"):
        EXPORTER.clear()
        with tracer.start_as_current_span(name):
            batches = list(loader)
        workers = [span.context for span in EXPORTER.get_finished_spans() if span.name == WORKER]
        expected = [f"00-{one.trace_id:032x}-{one.span_id:016x}-01" for one in workers]
        assert batches == [[expected[number % 2]] * 2 for number in range(4)]
    EXPORTER.clear()
    assert list(loader) == [[None] * 2] * 4, "no span is current"
    assert not EXPORTER.get_finished_spans()


def test_a_pass_that_is_left_ends_the_spans_of_its_workers(tracer: trace.Tracer) -> None:
    loader = observe(DataLoader(Parents(), 2, num_workers=1, collate_fn=list), feed=False)
    EXPORTER.clear()
    with tracer.start_as_current_span("epoch"):
        for _ in loader:
            break
        gc.collect()
    names = [span.name for span in EXPORTER.get_finished_spans()]
    assert names == [BATCH, WORKER, "epoch"]


def test_a_loop_without_a_span_has_none(filled: forebay.Bucket, tracer: trace.Tracer) -> None:
    loader = ThreadLoader(dataset(filled), 4, threads=2)
    EXPORTER.clear()
    assert sum(1 for _ in loader) == 3
    assert not EXPORTER.get_finished_spans()
