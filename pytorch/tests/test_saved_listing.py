"""Going on with what was listed when a state was saved, although objects came since."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from forebay_cluster import wait_until

import forebay
from forebay_torch import (
    BatchIterDataset,
    DataShard,
    DistributedShardSampler,
    DynamicBatchSampler,
    IterableDataset,
    MapDataset,
    MixedDataset,
    MultiShardStream,
    ShardReader,
    ThreadLoader,
    resume_state,
)
from shard_files import tar
from torch.utils.data import DataLoader

NAMES = [f"m/{i:02}" for i in range(11)]
EARLIER, LATER = ["a/0", "m/035", "z/1"], ["n/0", "n/1", "z/2"]


# How many tests need a bucket of objects, or of shards, that are older than what they put into it.
_OBJECT_TESTS, _SHARD_TESTS = 15, 4


class OldBuckets(NamedTuple):
    """Buckets that were filled before any test began, so that tests wait for a new second once."""

    objects: list[forebay.Bucket]
    shards: list[forebay.Bucket]


@pytest.fixture(scope="module")
def old_buckets(cluster: Any) -> Iterator[OldBuckets]:
    client = forebay.Client(cluster.endpoint, timeout=20)
    run = uuid.uuid4().hex[:8]
    every = [
        client.bucket(f"l-{run}-{number}").create()
        for number in range(_OBJECT_TESTS + _SHARD_TESTS)
    ]
    old = OldBuckets(every[:_OBJECT_TESTS], every[_OBJECT_TESTS:])
    for bucket in old.objects:
        bucket.put_many((name, b"xy") for name in NAMES)
    for bucket in old.shards:
        for number, count in enumerate([5, 1, 4, 3], 3):
            put_shard(bucket, number, count)
    yield old
    for bucket in every:
        bucket.delete()


@pytest.fixture
def filled(old_buckets: OldBuckets) -> forebay.Bucket:
    return old_buckets.objects.pop()


def put_shard(bucket: forebay.Bucket, number: int, count: int) -> None:
    members = [(f"{number}{i}.txt", b"x") for i in range(count)]
    bucket.object(f"s{number}.tar").put(tar(members))


def put_later(bucket: forebay.Bucket, *new: str) -> None:
    """Puts objects that are newer than those of the bucket, in whole seconds as HTTP has them."""
    newest = max(bucket.object(name).head().mtime for name in bucket.list_snapshot().names())
    wait_until(lambda: time.time() >= newest + 1, "a second has passed")
    bucket.put_many((name, b"xyz") for name in new)


def made(kind: str, bucket: forebay.Bucket) -> tuple[MapDataset, Any]:
    dataset = MapDataset(bucket)
    if kind == "sampler":
        return dataset, DistributedShardSampler(dataset, seed=3)
    return dataset, DynamicBatchSampler(dataset, 6, shuffle=True, seed=3)


def names(dataset: MapDataset, entries: Any) -> list[str]:
    rows = [row for entry in entries for row in (entry if isinstance(entry, list) else [entry])]
    return [dataset.objects.name(row) for row in rows]


@pytest.mark.parametrize("kind", ["sampler", "batches"])
@pytest.mark.parametrize("new", [LATER, EARLIER])
def test_an_epoch_goes_on_with_what_was_listed_and_the_next_has_all(
    filled: forebay.Bucket, kind: str, new: list[str]
) -> None:
    dataset, sampler = made(kind, filled)
    whole = names(dataset, sampler)
    sampler.set_epoch(0)
    head = names(dataset, itertools.islice(sampler, 2))
    state = sampler.state_dict()
    assert len(repr(state)) < 150
    put_later(filled, *new)
    dataset, resumed = made(kind, filled)
    with pytest.raises(ValueError, match=r'load_state_dict\(state, data="listed"\)'):
        resumed.load_state_dict(state)
    resumed.load_state_dict(state, data="listed")
    entries = iter(resumed)
    middle = names(dataset, itertools.islice(entries, 1))
    second = resumed.state_dict()
    assert head + middle + names(dataset, entries) == whole
    assert sorted(names(dataset, resumed)) == sorted(NAMES + new), "new objects come with the next epoch"
    again = made(kind, filled)[1]
    again.load_state_dict(second, data="listed")
    again.set_epoch(0)
    assert head + middle + names(dataset, again) == whole
    again.load_state_dict(again.state_dict(), data="listed")
    assert sorted(names(dataset, again)) == sorted(NAMES + new), "a state of the epoch's end"
    again.load_state_dict(second, data="listed")
    again.set_epoch(1)
    assert sorted(names(dataset, again)) == sorted(NAMES + new), "another epoch"


def test_a_thread_loader_goes_on_with_what_was_listed(filled: forebay.Bucket) -> None:
    def loader() -> ThreadLoader:
        return ThreadLoader(MapDataset(filled), 2, shuffle=True, seed=3)

    first = loader()
    head = [name for found, _ in itertools.islice(first, 3) for name in found]
    state = first.state_dict()
    put_later(filled, "a/0")
    resumed = loader()
    resumed.load_state_dict(state, data="listed")
    assert sorted(head + [name for found, _ in resumed for name in found]) == NAMES
    assert sum(len(found) for found, _ in resumed) == 12


def batch_names(batches: Any, count: int | None = None) -> list[str]:
    return [name for found, _ in itertools.islice(batches, count) for name in found]


@pytest.mark.parametrize(
    "kind,loader",
    [
        (IterableDataset, "none"),
        (IterableDataset, "workers"),
        (IterableDataset, "workers that live on"),
        (IterableDataset, "threads"),
        (BatchIterDataset, "workers"),
    ],
)
def test_an_iterable_goes_on_with_what_was_listed(
    filled: forebay.Bucket, kind: type[IterableDataset], loader: str
) -> None:
    def stream() -> IterableDataset:
        return kind(filled, shuffle=True, seed=3, batch_size=2)

    def loaded(dataset: IterableDataset) -> Any:
        if loader == "threads":
            return ThreadLoader(dataset, 2, threads=2)
        workers = 0 if loader == "none" else 2
        lives_on = loader == "workers that live on"
        return DataLoader(dataset, 2, num_workers=workers, persistent_workers=lives_on)

    whole = batch_names(loaded(stream()))
    first = stream()
    batches = iter(loaded(first))
    head = batch_names(batches, 2)
    state = first.state_dict(num_samples=4)
    put_later(filled, *EARLIER)
    resumed = stream()
    with pytest.raises(ValueError, match=r'load_state_dict\(state, data="listed"\)'):
        resumed.load_state_dict(state)
    resumed.load_state_dict(state, data="listed")
    assert resumed.state_dict() == state
    passes = loaded(resumed)
    batches = iter(passes)
    middle = batch_names(batches, 2)
    second = resumed.state_dict(num_samples=4)
    assert (second["total"], second["consumed"]) == (len(NAMES), 8)
    assert head + middle + batch_names(batches) == whole
    every = batch_names(passes)
    assert sorted(every) == sorted(NAMES + EARLIER), "new objects come with the next pass"
    resumed.load_state_dict(second)
    assert head + middle + batch_names(passes) == whole, "the listing of then is still here"
    assert batch_names(passes) == every


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_data_loader_goes_on_with_what_was_listed(
    filled: forebay.Bucket, workers: int
) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def loader(dataset: IterableDataset) -> Any:
        return stateful(dataset, batch_size=2, num_workers=workers)

    def stream() -> IterableDataset:
        return IterableDataset(filled, shuffle=True, seed=3, batch_size=2)

    whole = batch_names(loader(stream()))
    first = loader(stream())
    head = batch_names(iter(first), 3)
    state = first.state_dict()
    put_later(filled, *EARLIER)
    dataset = stream()
    dataset.load_state_dict(resume_state(state), data="listed")
    second = loader(dataset)
    middle = batch_names(iter(second), 1)
    third = loader(dataset)
    third.load_state_dict(second.state_dict())
    assert head + middle + batch_names(third) == whole


@pytest.mark.parametrize("loader", ["none", "workers", "workers that live on", "stateful"])
def test_a_shard_reader_goes_on_with_what_was_listed(
    old_buckets: OldBuckets, loader: str
) -> None:
    bucket = old_buckets.shards.pop()

    def reader() -> ShardReader:
        return ShardReader(bucket, shuffle_shards=True, seed=3, batch_size=2)

    def loaded(dataset: ShardReader) -> Any:
        if loader == "stateful":
            stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
            return stateful(dataset, batch_size=2, num_workers=2)
        workers = 0 if loader == "none" else 2
        lives_on = loader == "workers that live on"
        return DataLoader(dataset, 2, num_workers=workers, persistent_workers=lives_on)

    old = sorted(batch_names(loaded(reader())))
    assert len(old) == 13
    first = reader()
    head = batch_names(iter(loaded(first)), 2)
    state = first.state_dict(num_samples=len(head))
    put_later(bucket)
    put_shard(bucket, 0, 2)
    resumed = reader()
    with pytest.raises(ValueError, match=r'load_state_dict\(state, data="listed"\)'):
        resumed.load_state_dict(state)
    resumed.load_state_dict(state, data="listed")
    batches = loaded(resumed)
    middle = batch_names(iter(batches), 1)
    second = resumed.state_dict(num_samples=len(middle))
    assert second["total"] == 4
    if loader == "stateful":
        batches.load_state_dict(batches.state_dict())
    else:
        resumed.load_state_dict(second)
    assert sorted(head + middle + batch_names(batches)) == old
    assert sorted(batch_names(batches)) == sorted([*old, "00", "01"]), "new shards come then"


@pytest.mark.parametrize("change", ["deleted", "written again", "fewer"])
def test_other_changes_than_new_objects_are_refused(filled: forebay.Bucket, change: str) -> None:
    _, sampler = made("sampler", filled)
    state = sampler.state_dict()
    filled.object(NAMES[4]).delete()
    if change != "fewer":
        filled.object("a/0").put(b"new")
    if change == "written again":
        filled.object(NAMES[4]).put(b"longer than before")
    _, resumed = made("sampler", filled)
    message = "not where they were deleted" if change != "written again" else "deleted or written again"
    with pytest.raises(ValueError, match=message):
        resumed.load_state_dict(state, data="listed")
    with pytest.raises(ValueError, match='data is "same" or "listed"'):
        resumed.load_state_dict(state, data="new")


@pytest.mark.parametrize("kind", ["mixed", "streams"])
def test_streams_whose_order_depends_on_every_length_say_that_they_cannot(
    bucket: forebay.Bucket, kind: str
) -> None:
    put_shard(bucket, 1, 4)

    def stream() -> Any:
        if kind == "streams":
            return MultiShardStream([DataShard(bucket)] * 2)
        return MixedDataset([MapDataset(bucket)] * 2)

    first = stream()
    samples = iter(first)
    next(samples)
    state = first.state_dict()
    rest = list(samples)
    resumed = stream()
    resumed.load_state_dict(state, data="listed")
    assert list(resumed) == rest, "nothing came, so it is the listing of then"
    put_shard(bucket, 0, 2)
    with pytest.raises(ValueError, match='depends on the length of every part: data="listed"'):
        stream().load_state_dict(state, data="listed")
    with pytest.raises(ValueError, match='data is "same" or "listed"'):
        stream().load_state_dict(state, data="new")
