"""The wait of a loop is divided by the making of its batch, to the last part."""

from __future__ import annotations

import pickle
import time

import pytest
from torch.utils.data import Subset

from forebay import waits
from forebay.waits import Wait
from forebay_torch import IterableDataset, LoaderStats, MapDataset, ShardMapDataset
from forebay_torch.batch_timing import CAUSES, BatchRecord, BatchTimer, base_cause, wait_causes
from forebay_torch.loader_stats import StepLog

# Two waits for the cluster, decoding around them, collation from 8 on.
RECORD = BatchRecord(
    0, 0.0, 8.0, 10.0, "decode", (Wait(1, 3, 1, 0, 0.5, 0.5, 0), Wait(5, 6, 0, 2, 0, 0, 0)), 4, 100
)


def causes(start: float, end: float, record: BatchRecord = RECORD) -> dict[str, float]:
    found = dict(zip(CAUSES, wait_causes(start, end, record), strict=True))
    assert sum(found.values()) == pytest.approx(end - start)
    return {cause: pytest.approx(seconds) for cause, seconds in found.items() if seconds > 1e-9}


def test_each_moment_of_a_wait_has_one_cause() -> None:
    whole = causes(-1, 12)
    assert whole == {
        "cold": 1, "queue": 0.5, "network": 0.5, "disk": 1, "decode": 5, "collate": 2, "worker": 3
    }
    assert causes(2, 5.5) == {"cold": 0.5, "queue": 0.25, "network": 0.25, "disk": 0.5, "decode": 2}
    assert causes(9, 10) == {"collate": 1}
    assert causes(-2, -1) == {"worker": 1}
    assert causes(10, 10.5) == {"worker": 0.5}
    assert causes(4, 4) == {}


def test_waits_that_overlap_or_lie_outside_are_cut() -> None:
    odd = BatchRecord(
        -1, 0, 4, 5, "client", (Wait(-3, 1, 0, 0, 0, 4, 0), Wait(0.5, 2, 1, 0, 0, 0, 0), Wait(4.5, 9, 0, 0, 0, 0, 0)), 1, 0
    )
    assert causes(0, 5, odd) == {"network": 1, "cold": 1, "client": 2.5, "collate": 0.5}


def test_the_segments_of_a_batch_follow_one_another() -> None:
    segments = list(RECORD.segments())
    assert segments[0][0] == RECORD.start and segments[-1][1] == RECORD.end
    assert all(before[1] == after[0] for before, after in zip(segments, segments[1:], strict=False))
    for start, end, parts in segments:
        assert sum(parts) == pytest.approx(end - start)
    assert pickle.loads(pickle.dumps(RECORD)) == RECORD


def test_a_timer_takes_the_waits_of_its_own_thread_and_time_alone() -> None:
    waits.keep([Wait(0, 1, 1, 0, 0, 0, 0)], 7)
    timer = BatchTimer("decode", 2)
    now = time.perf_counter()
    waits.keep([Wait(now, now + 1e-6, 0, 1, 0, 0, 0)], 5)
    timer.collate()
    record = timer.finish(3)
    assert (record.worker, record.samples, record.bytes) == (2, 3, 5)
    assert [wait.disk for wait in record.waits] == [1]
    assert record.start <= now <= record.collated <= record.end
    assert waits.take() == ([], 0)


def test_sums_percentiles_and_the_table() -> None:
    log = StepLog(report=False)
    log.begin_epoch()
    for step in range(10_000):
        log.step(step, step + (1.0 if step % 50 == 0 else 0.01), 2, None)
        log.computed(0.5)
    stats = log.stats()
    assert (stats.steps, stats.samples, stats.attributed_fraction) == (10_000, 20_000, 0)
    assert stats.wait_p50_s == pytest.approx(0.01) and stats.wait_p99_s == pytest.approx(1.0)
    assert stats.step_s == pytest.approx(5000 + 200 + 98)
    assert "unknown" in stats.table()
    assert len(stats._traced) == 2000, "memory is bounded"
    log.step(0, 10, 4, RECORD)
    assert log.stats().causes["decode"] == pytest.approx(5)
    assert log.stats().bytes == 100
    assert LoaderStats().table() and LoaderStats().attributed_fraction == 1


def test_only_functions_of_users_are_decoding(bucket) -> None:  # type: ignore[no-untyped-def]
    bucket.put_many([("a", b"1")])
    assert base_cause(MapDataset(bucket)) == "client"
    assert base_cause(MapDataset(bucket, data_format_fn=len)) == "decode"
    assert base_cause(IterableDataset(bucket)) == "client"
    assert base_cause(ShardMapDataset(bucket, allow_empty=True)) == "client"
    assert base_cause(ShardMapDataset(bucket, allow_empty=True, decode={"cls": int})) == "decode"
    assert base_cause(Subset(MapDataset(bucket), [0])) == "decode"

    class Own(MapDataset):
        pass

    assert base_cause(Own(bucket)) == "decode"
