"""The order of an epoch, announced to the cluster and to threads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler

import forebay
from forebay_torch import (
    DistributedShardSampler,
    DynamicBatchSampler,
    IterableDataset,
    MapDataset,
    ShardReader,
    prefetch_order,
)

COUNT = 60


@pytest.fixture
def folder(client: forebay.Client, cluster: Any, request: Any) -> Iterator[forebay.Bucket]:
    """A bucket of which nothing is in the cluster yet."""
    root = cluster.folder_root / request.node.name.partition("[")[0]
    root.mkdir()
    for i in range(COUNT):
        (root / f"{i:03}").write_bytes(b"%d" % i * 200)
    own = client.bucket(root.name.lower().replace("_", "-")[:60]).create(folder=root)
    yield own
    own.delete()


def present(bucket: forebay.Bucket) -> set[str]:
    return {entry.name for entry in bucket.list_objects() if entry.present}


def until(condition: Any) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_samplers_order_makes_cold_objects_warm_before_they_are_due(folder: Any) -> None:
    dataset = MapDataset(folder)
    sampler = DistributedShardSampler(dataset, shuffle=True, seed=3, rank=0, world_size=1)
    due = [f"{i:03}" for i in sampler.order_ahead()]
    order = iter(prefetch_order(dataset, sampler, ahead=20))
    assert not present(folder)
    next(order)
    until(lambda: present(folder) == set(due[:20]))
    for _ in range(30):
        next(order)
    until(lambda: set(due[:50]) <= present(folder))
    assert set(due[55:]) & present(folder) == set(), "no more than was asked for"


def test_the_hint_never_changes_what_is_read(folder: Any) -> None:
    dataset = MapDataset(folder)
    shuffled = DistributedShardSampler(dataset, seed=1, rank=0, world_size=1)
    for plain, rows in (
        (SequentialSampler(dataset), list(range(COUNT))),
        (shuffled, shuffled.order_ahead()),
    ):
        hinted = prefetch_order(dataset, plain, ahead=8)
        loader = DataLoader(dataset, batch_size=8, sampler=hinted, num_workers=2)
        names = [name for batch, _ in loader for name in batch]
        assert names == [f"{row:03}" for row in rows] and len(hinted) == COUNT


def test_a_thread_has_the_next_batches_ready_when_the_consumer_takes_20_ms(
    bucket: forebay.Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put_many((f"{i:03}", bytes(100)) for i in range(COUNT))
    dataset = MapDataset(bucket)
    kind = type(dataset._index)
    plain = kind.try_many

    def slow(self: Any, *asked: Any, **how: Any) -> Any:
        time.sleep(0.015)
        return plain(self, *asked, **how)

    monkeypatch.setattr(kind, "try_many", slow)

    def waited(sampler: Any) -> float:
        total = 0.0
        batches = iter(DataLoader(dataset, batch_sampler=sampler))
        next(batches)
        while True:
            started = time.perf_counter()
            if next(batches, None) is None:
                return total
            total += time.perf_counter() - started
            time.sleep(0.02)

    batches = BatchSampler(SequentialSampler(dataset), 4, False)
    without = waited(batches)
    ready = waited(prefetch_order(dataset, batches, ahead=0, batches=3))
    assert ready <= without / 2


def test_workers_announce_their_next_objects_to_the_cluster(folder: Any) -> None:
    dataset = IterableDataset(folder, shuffle=True, seed=1, warm_ahead=40)
    samples = iter(dataset)
    first, _ = next(samples)
    until(lambda: len(present(folder)) == COUNT)
    assert {first, *(name for name, _ in samples)} == {f"{i:03}" for i in range(COUNT)}


def test_a_shard_reader_warms_its_next_shards(cluster: Any, client: forebay.Client) -> None:
    import io
    import tarfile

    root = cluster.folder_root / "warm-shards"
    root.mkdir()
    for number in range(10):
        with tarfile.open(root / f"{number}.tar", "w") as tar:
            info = tarfile.TarInfo(f"{number}.txt")
            info.size = 5
            tar.addfile(info, io.BytesIO(b"hello"))
    own = client.bucket("warm-shards").create(folder=root)
    try:
        samples = iter(ShardReader(own, shuffle_shards=True, warm_ahead=8))
        next(samples)
        until(lambda: len(present(own)) >= 8)
        assert len(list(samples)) == 9
    finally:
        own.delete()


def test_the_state_is_that_of_the_sampler(bucket: forebay.Bucket) -> None:
    bucket.put_many((f"{i:03}", bytes(10)) for i in range(COUNT))
    dataset = MapDataset(bucket)

    def make() -> Any:
        own = DynamicBatchSampler(dataset, 100, shuffle=True, rank=0, world_size=1)
        return prefetch_order(dataset, own, batches=2)

    hinted = make()
    whole = list(make())
    started = iter(hinted)
    head = [next(started) for _ in range(2)]
    resumed = make()
    resumed.load_state_dict(hinted.state_dict())
    assert head + list(resumed) == whole
    resumed.set_epoch(0)
    assert list(resumed) == whole


def test_what_makes_no_sense_is_refused(bucket: forebay.Bucket) -> None:
    bucket.put_many([("a", b"1"), ("b", b"2")])
    dataset = MapDataset(bucket)
    with pytest.raises(TypeError, match="warm_ahead"):
        prefetch_order(IterableDataset(bucket), None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="batch sampler"):
        prefetch_order(dataset, RandomSampler(dataset), batches=2)
    with pytest.raises(ValueError, match="negative"):
        prefetch_order(dataset, RandomSampler(dataset), ahead=-1)
    with pytest.raises(ValueError, match="warm_ahead"):
        IterableDataset(bucket, warm_ahead=-1)
