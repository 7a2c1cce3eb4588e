"""Which rank and worker gets what, beyond the usual."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from torch.utils.data import DataLoader

import forebay
from forebay_torch import (
    DistributedShardSampler,
    DynamicBatchSampler,
    IterableDataset,
    MapDataset,
    ShardReader,
    ShardWriter,
)


@pytest.fixture
def shards(bucket: forebay.Bucket) -> forebay.Bucket:
    with ShardWriter("s-%02d.tar", 5, bucket=bucket) as writer:
        for i in range(40):
            writer.write({"__key__": f"{i:03}", "txt": f"{i}"})
    return bucket


def test_ranks_of_one_replica_see_the_same_samples(shards: forebay.Bucket) -> None:
    def read(rank: int, kind: Any) -> list[str]:
        options = {"rank": rank, "world_size": 4, "replication": 2}
        if kind is MapDataset:
            dataset = MapDataset(shards)
            return [dataset[i][0] for i in DistributedShardSampler(dataset, **options)]
        return [key for key, _ in kind(shards, **options)]

    for kind in (MapDataset, IterableDataset, ShardReader):
        ranks = [read(rank, kind) for rank in range(4)]
        assert ranks[0] == ranks[1] and ranks[2] == ranks[3]
        assert not set(ranks[0]) & set(ranks[2])
        assert len({*ranks[0], *ranks[2]}) == (40 if kind is ShardReader else 8)
    data = MapDataset(shards)
    batches = [
        list(DynamicBatchSampler(data, 1 << 20, rank=rank, world_size=2, replication=2))
        for rank in range(2)
    ]
    assert batches[0] == batches[1]
    with pytest.raises(ValueError, match="3 ranks are no groups of 2"):
        list(IterableDataset(shards, rank=0, world_size=3, replication=2))
    with pytest.raises(ValueError, match="replication"):
        IterableDataset(shards, replication=0)


def odd(uris: Iterable[str]) -> Iterator[str]:
    return (uri for uri in uris if int(uri[-6:-4]) % 2)


def only_first_worker(uris: Iterable[str]) -> Iterator[str]:
    from torch.utils.data import get_worker_info

    info = get_worker_info()
    return iter(list(uris) if info is None or info.id == 0 else [])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_nodesplitter_and_a_workersplitter_say_who_reads_which_shards(
    shards: forebay.Bucket, workers: int
) -> None:
    reader = ShardReader(shards, nodesplitter=odd, workersplitter=only_first_worker)
    loader = DataLoader(reader, batch_size=None, num_workers=workers)
    assert [key for key, _ in loader] == [f"{i:03}" for i in range(40) if i // 5 % 2]
    with pytest.raises(TypeError, match="no state"):
        reader.state_dict()
    with pytest.raises(TypeError, match="no len"):
        len(reader)


def test_one_splitter_alone_leaves_the_other_split_as_it_is(shards: forebay.Bucket) -> None:
    reader = ShardReader(shards, nodesplitter=odd)
    keys = [key for key, _ in DataLoader(reader, batch_size=None, num_workers=2)]
    assert sorted(keys) == [f"{i:03}" for i in range(40) if i // 5 % 2]


def test_a_handler_decides_whether_to_continue(shards: forebay.Bucket) -> None:
    shards.object("s-03.tar").put(b"no archive at all")
    seen: list[Exception] = []
    reader = ShardReader(shards, handler=lambda error: seen.append(error) or True)
    assert len({key for key, _ in reader}) == 35 and "s-03.tar" in str(seen[0])


def test_one_shard_on_four_ranks_does_not_hang_and_says_so(bucket: forebay.Bucket) -> None:
    with ShardWriter("only-%d.tar", bucket=bucket) as writer:
        writer.write({"__key__": "a", "txt": "a"})
    lengths = []
    for rank in range(4):
        with pytest.warns(UserWarning, match="1 shards for 4 ranks: some ranks get no samples"):
            lengths.append(len(list(ShardReader(bucket, rank=rank, world_size=4))))
    assert lengths == [1, 0, 0, 0]
