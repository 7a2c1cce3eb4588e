"""A subclass's own ``__getitem__`` decides what its samples are, in every way of loading."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from forebay_cluster import Cluster
from shard_files import tar
from torch.utils.data import DataLoader

import forebay
from forebay_torch import (
    DynamicBatchSampler,
    MapDataset,
    MixedDataset,
    ParallelMapDataset,
    ShardMapDataset,
    ThreadLoader,
    prefetch_order,
)
from forebay_torch.compat.aistore import AISMapDataset, AISParallelMapDataset
from forebay_torch.compat.dataflux import DataFluxMapStyleDataset
from forebay_torch.compat.s3 import S3MapDataset, S3ReaderConstructor

LENGTHS = list(range(1, 13))
NAMES = [f"{i:02}" for i in LENGTHS]

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def own(base: Any) -> Any:
    """A subclass whose samples are pairs of index and length."""

    class Labelled(base):  # type: ignore[misc]
        def __getitem__(self, index: int) -> tuple[int, int]:
            content = super().__getitem__(index)
            content = content[1] if isinstance(content, tuple) else content
            content = content["bin"] if isinstance(content, dict) else content
            content = content.read() if hasattr(content, "read") else content
            return index, len(content)

    return Labelled


def members() -> list[tuple[str, bytes]]:
    return [(f"{name}.bin", bytes(length)) for name, length in zip(NAMES, LENGTHS, strict=True)]


@pytest.fixture
def filled(bucket: forebay.Bucket) -> forebay.Bucket:
    bucket.put_many((name, bytes(length)) for name, length in zip(NAMES, LENGTHS, strict=True))
    return bucket


KINDS = {
    "MapDataset": lambda b: own(MapDataset)(b),
    "ParallelMapDataset": lambda b: own(ParallelMapDataset)(b),
    "AISMapDataset": lambda b: own(AISMapDataset)(b),
    "AISParallelMapDataset": lambda b: own(AISParallelMapDataset)(b),
    "Dataflux": lambda b: own(DataFluxMapStyleDataset)("p", b.uri, storage_client=b.client),
    "S3MapDataset": lambda b: own(S3MapDataset).from_prefix(b.uri, client=b.client),
    "S3MapDataset by ranges": lambda b: own(S3MapDataset).from_prefix(
        b.uri, client=b.client, reader_constructor=S3ReaderConstructor.range_based()
    ),
    "ShardMapDataset": lambda b: own(ShardMapDataset)(b),
}


@pytest.mark.parametrize("kind", KINDS)
def test_loaders_take_samples_of_a_subclass_from_its_getitem(
    bucket: forebay.Bucket, kind: str
) -> None:
    if kind == "ShardMapDataset":
        bucket.object("s.tar").put(tar(members()))
    else:
        bucket.put_many((name.removesuffix(".bin"), content) for name, content in members())
    dataset = KINDS[kind](bucket)
    expected = [(i, i + 1) for i in range(12)]
    assert [dataset[i] for i in range(12)] == expected
    for workers in (0, 2):
        loader = DataLoader(dataset, batch_size=5, num_workers=workers, collate_fn=list)
        assert sum(loader, []) == expected, workers
    for threads in (0, 2):
        loader = ThreadLoader(dataset, batch_size=5, threads=threads, collate_fn=list)
        assert sum(loader, []) == expected, threads
    mixed = MixedDataset([dataset], shuffle=False)
    assert list(mixed) == expected
    if hasattr(dataset, "aget_many"):
        assert asyncio.run(dataset.aget_many([3, 1])) == [expected[3], expected[1]]


def test_samplers_that_make_or_announce_batches_do_too(filled: forebay.Bucket) -> None:
    dataset = own(MapDataset)(filled)
    sampler = DynamicBatchSampler(dataset, max_batch_size=30)
    for order in (sampler, prefetch_order(dataset, sampler, ahead=4, batches=2)):
        loader = DataLoader(dataset, batch_sampler=order, collate_fn=list)
        assert sorted(sum(loader, [])) == [(i, i + 1) for i in range(12)]


def test_a_batch_of_a_subclass_is_fetched_together(
    filled: forebay.Bucket, cluster: Cluster
) -> None:
    dataset = own(MapDataset)(filled)
    before = cluster.count("forebay_batch_entries_total")
    requests = cluster.count("forebay_http_requests_total", op="batch")
    assert len(dataset.__getitems__(range(12))) == 12
    assert cluster.count("forebay_batch_entries_total") - before == 12
    assert cluster.count("forebay_http_requests_total", op="batch") - requests <= 3


class Twice(MapDataset):
    """Each object twice, by indices of its own."""

    def __len__(self) -> int:
        return 2 * super().__len__()

    def __getitem__(self, index: Any) -> Any:
        name, content = self.objects[index // 2], super().__getitem__(index // 2)[1]
        return name[0], index % 2, len(content)


class ByName(MapDataset):
    """Samples by texts, as a sampler of the user's draws them."""

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(NAMES.index(index))


def test_indices_mean_what_the_subclass_says(filled: forebay.Bucket) -> None:
    twice = Twice(filled)
    expected = [(name, turn, i + 1) for i, name in enumerate(NAMES) for turn in (0, 1)]
    for loader in (
        DataLoader(twice, batch_size=5, collate_fn=list),
        DataLoader(twice, batch_size=5, num_workers=2, collate_fn=list),
        ThreadLoader(twice, batch_size=5, collate_fn=list),
    ):
        assert sum(loader, []) == expected
    by_name = ByName(filled)
    loader = DataLoader(by_name, sampler=NAMES[::-1], batch_size=4, collate_fn=list)
    assert [name for name, _ in sum(loader, [])] == NAMES[::-1]


def test_a_subclass_may_make_batches_itself(filled: forebay.Bucket) -> None:
    class Both(MapDataset):
        def __getitem__(self, index: Any) -> Any:
            return len(super().__getitem__(index)[1])

        def __getitems__(self, indices: Any) -> Any:
            return [len(content) for _, content in super().__getitems__(indices)]

    loader = DataLoader(Both(filled), batch_size=5, collate_fn=list)
    assert sum(loader, []) == LENGTHS


def test_failures_come_where_getitem_reads(filled: forebay.Bucket) -> None:
    class Careful(MapDataset):
        def __getitem__(self, index: Any) -> Any:
            try:
                return len(super().__getitem__(index)[1])
            except forebay.NotFound:
                return None

    dataset = Careful(filled)
    replacing = own(MapDataset)(filled, on_error="replace")
    filled.object(NAMES[2]).delete()
    assert dataset.__getitems__([1, 2, 3]) == [2, None, 4]
    assert replacing.__getitems__([1, 2, 3]) == [(1, 2), (2, 4), (3, 4)]


def stop(*arguments: Any) -> Any:
    return next(iter(()))


class Stops(MapDataset):
    def __getitem__(self, index: Any) -> Any:
        return stop() if index == 7 else super().__getitem__(index)


def test_StopIteration_of_a_users_function_is_an_error_that_names_the_object(
    filled: forebay.Bucket
) -> None:
    filled.object("s.tar").put(tar(members()))
    shard = {filled: "s.tar"}
    one = {filled: NAMES[0]}
    uri = f"{filled.uri}/{NAMES[0]}"
    from forebay_torch import IterableDataset, ShardReader
    from forebay_torch.compat.s3 import S3IterableDataset

    cases: list[tuple[Any, str]] = [
        (MapDataset(filled, one, data_format_fn=stop), NAMES[0]),
        (IterableDataset(filled, one, data_format_fn=stop), NAMES[0]),
        (ShardReader(filled, shard, decode=stop), "'01' of"),
        (ShardReader(filled, shard, decode={"bin": stop}), "'bin' of the sample '01'"),
        (ShardReader(filled, shard, decode={"bin": int}, on_error=stop), "'.*s.tar/01'"),
        (ShardReader(filled, shard, decode={"bin": int}, handler=stop), "'.*s.tar/01'"),
        (ShardMapDataset(filled, shard, decode=stop), "'01' of"),
        (S3MapDataset.from_objects(uri, transform=stop, client=filled.client), uri),
        (S3IterableDataset.from_objects(uri, transform=stop, client=filled.client), uri),
        (
            S3IterableDataset.from_objects(
                uri, transform=stop, client=filled.client, enable_sharding=True
            ),
            uri,
        ),
        (Stops(filled), "index 7"),
    ]
    for dataset, named in cases:
        for loader in (
            DataLoader(dataset, batch_size=4, collate_fn=list),
            ThreadLoader(dataset, batch_size=4, collate_fn=list, threads=2),
            ThreadLoader(dataset, batch_size=4, collate_fn=list, threads=0),
        ):
            with pytest.raises(RuntimeError, match=f"StopIteration.*{named}"):
                list(loader)
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(ThreadLoader(MapDataset(filled, one), collate_fn=stop))
    missing = MapDataset(filled, one, on_error=stop)
    filled.object(NAMES[0]).delete()
    with pytest.raises(RuntimeError, match=f"on_error raised StopIteration.*{NAMES[0]}"):
        missing[0]
