"""Exact resume with real loaders, real workers and a real cluster."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from shard_files import tar
from torch.utils.data import DataLoader

import forebay
from forebay_torch import (
    DataShard,
    DistributedShardSampler,
    DynamicBatchSampler,
    IterableDataset,
    MapDataset,
    MultiShardStream,
    resume_state,
)

TOTAL, SIZE = 41, 3
NAMES = [f"o/{i:02}" for i in range(TOTAL)]

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture(scope="module")
def filled(cluster: Any) -> Iterator[forebay.Bucket]:
    bucket = forebay.Client(cluster.endpoint, timeout=20).bucket("resume").create()
    bucket.put_many((name, name.encode() * 3) for name in NAMES)
    yield bucket
    bucket.delete()


def stream(bucket: forebay.Bucket, rank: int, world: int, **options: Any) -> IterableDataset:
    options = {"shuffle": True, "seed": 4, "batch_size": SIZE, **options}
    return IterableDataset(bucket, rank=rank, world_size=world, **options)


def loader(dataset: Any, workers: int, **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset, batch_size=SIZE, num_workers=workers, **options)


def names(batches: Any) -> list[str]:
    return [name for found, _ in batches for name in found]


@pytest.mark.parametrize(
    "first,stop,second",
    [
        ((1, 0), 5, (2, 2)),
        ((1, 2), 4, (1, 3)),
        ((2, 1), 3, (1, 0)),
        ((2, 3), 2, (3, 1)),
        ((4, 2), 1, (2, 3)),
        ((3, 2), 0, (4, 0)),
    ],
)
def test_an_iterable_goes_on_with_other_ranks_and_workers(
    filled: forebay.Bucket, first: tuple[int, int], stop: int, second: tuple[int, int]
) -> None:
    world, workers = first
    seen, states = [], []
    for rank in range(world):
        dataset = stream(filled, rank, world)
        dataset.set_epoch(2)
        batches = iter(loader(dataset, workers))
        seen += names(next(batches) for _ in range(stop))
        states.append(dataset.state_dict(num_samples=stop * SIZE))
    assert all(state == states[0] for state in states)
    assert seen if stop else not seen
    world, workers = second
    following = []
    for rank in range(world):
        dataset = stream(filled, rank, world)
        dataset.load_state_dict(pickle.loads(pickle.dumps(states[0])))
        batches = loader(dataset, workers)
        seen += names(batches)
        following += names(batches)
    assert sorted(seen) == NAMES
    assert sorted(following) == NAMES, "the epoch after it is whole again"


def test_the_order_is_that_of_the_uninterrupted_run(filled: forebay.Bucket) -> None:
    whole = names(loader(stream(filled, 0, 1), 0))
    assert names(loader(stream(filled, 0, 1), 3)) == whole
    dataset = stream(filled, 0, 1)
    batches = iter(loader(dataset, 2))
    before = names(next(batches) for _ in range(4))
    resumed = stream(filled, 0, 1)
    resumed.load_state_dict(dataset.state_dict(num_samples=4 * SIZE))
    assert before + names(loader(resumed, 3)) == whole


def test_persistent_workers_deliver_whole_epochs_after_a_resume(
    filled: forebay.Bucket,
) -> None:
    whole = names(loader(stream(filled, 0, 1), 0))
    state = stream(filled, 0, 1).state_dict(num_samples=6)
    dataset = stream(filled, 0, 1)
    dataset.load_state_dict(state)
    batches = loader(dataset, 2, persistent_workers=True)
    assert [names(batches) for _ in range(2)] == [whole[6:], whole]
    dataset.load_state_dict(state)
    assert names(batches) == whole[6:], "a state loaded later reaches workers that live on"


def test_a_state_without_a_count_is_refused_while_workers_deliver(
    filled: forebay.Bucket,
) -> None:
    dataset = stream(filled, 0, 1)
    assert len(names(loader(dataset, 1))) == TOTAL
    with pytest.raises(ValueError, match=r"state_dict\(num_samples=...\)"):
        dataset.state_dict()


def test_without_workers_the_dataset_counts_itself(filled: forebay.Bucket) -> None:
    dataset = stream(filled, 0, 1)
    samples = iter(dataset)
    taken = [next(samples)[0] for _ in range(7)]
    resumed = stream(filled, 0, 1)
    resumed.load_state_dict(dataset.state_dict())
    assert sorted(taken + [name for name, _ in resumed]) == NAMES


def test_a_map_dataset_goes_on_with_the_sampler(filled: forebay.Bucket) -> None:
    dataset = MapDataset(filled)

    def rank_loader(rank: int, world: int, state: Any = None) -> tuple[Any, DataLoader[Any]]:
        sampler = DistributedShardSampler(
            dataset, seed=3, rank=rank, world_size=world, equal_length="none"
        )
        if state is not None:
            sampler.load_state_dict(state)
        return sampler, loader(dataset, 2, sampler=sampler)

    seen, state = [], {}
    for rank in (1, 0):
        sampler, batches = rank_loader(rank, 2)
        iterator = iter(batches)
        seen += names(next(iterator) for _ in range(4))
        state = sampler.state_dict(num_samples=4 * SIZE)
    for rank in range(3):
        seen += names(rank_loader(rank, 3, state)[1])
    assert sorted(seen) == NAMES


def test_a_multi_shard_stream_goes_on(bucket: forebay.Bucket) -> None:
    for part in ("a", "b"):
        for shard in range(2):
            members = {f"{shard}{i}.{part}": f"{part}{shard}{i}".encode() for i in range(7)}
            bucket.object(f"{part}-{shard}.tar").put(tar(members.items()))
    sources = [DataShard(bucket, "a-"), DataShard(bucket, "b-")]
    whole = list(MultiShardStream(sources))
    dataset = MultiShardStream(sources, batch_size=SIZE)
    batches = iter(loader(dataset, 2))
    before = [pair for _ in range(2) for pair in zip(*next(batches), strict=True)]
    after = []
    for rank in range(2):
        resumed = MultiShardStream(sources, rank=rank, world_size=2)
        resumed.load_state_dict(dataset.state_dict(num_samples=2 * SIZE))
        after += list(resumed)
    assert before == whole[:6]
    assert sorted(before + after) == sorted(whole)


@pytest.fixture
def stateful() -> Any:
    return pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader


def interrupted(batches: Any, steps: int) -> tuple[list[str], Mapping[str, Any]]:
    """Returns the names of the first steps, and the loader's state after them."""
    iterator = iter(batches)
    return names(next(iterator) for _ in range(steps)), batches.state_dict()


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("kind", ["iterable", "sampler", "batches"])
def test_a_stateful_data_loader_goes_on_by_itself_and_in_another_shape(
    filled: forebay.Bucket, stateful: Any, kind: str, workers: int
) -> None:
    def make(count: int, state: Any = None) -> Any:
        if kind == "iterable":
            owner: Any = stream(filled, 0, 1)
            options: dict[str, Any] = {"dataset": owner, "batch_size": SIZE}
        elif kind == "sampler":
            dataset = MapDataset(filled)
            owner = DistributedShardSampler(dataset, seed=3)
            options = {"dataset": dataset, "batch_size": SIZE, "sampler": owner}
        else:
            dataset = MapDataset(filled)
            owner = DynamicBatchSampler(dataset, 40, shuffle=True, seed=3)
            options = {"dataset": dataset, "batch_sampler": owner}
        if state is not None:
            owner.load_state_dict(state)
        return stateful(num_workers=count, **options)

    whole = names(make(0))
    assert sorted(whole) == NAMES
    before, state = interrupted(make(workers), 5)
    assert before == whole[: len(before)]
    state = pickle.loads(pickle.dumps(state))
    same = make(workers)
    same.load_state_dict(state)
    assert before + names(same) == whole
    assert len(names(same)) == TOTAL, "the epoch after it is whole again"
    small = resume_state(state)
    assert len(repr(small)) < 150
    for other in (0, 2):
        assert before + names(make(other, small)) == whole


def test_the_state_of_a_finished_stateful_loader_begins_a_whole_epoch(
    filled: forebay.Bucket, stateful: Any
) -> None:
    for workers in (0, 2):
        finished = stateful(stream(filled, 0, 1), batch_size=SIZE, num_workers=workers)
        list(finished)
        again = stateful(stream(filled, 0, 1), batch_size=SIZE, num_workers=workers)
        again.load_state_dict(finished.state_dict())
        assert sorted(names(again)) == NAMES


def test_a_dataset_without_the_batch_size_of_the_loader_refuses_the_state(
    filled: forebay.Bucket, stateful: Any
) -> None:
    dataset = stream(filled, 0, 1, batch_size=1)
    _, state = interrupted(stateful(dataset, batch_size=SIZE, num_workers=2), 3)
    with pytest.raises(ValueError, match="batch_size of the loader"):
        resume_state(state)
    with pytest.raises(ValueError, match="no dataset or sampler of Forebay"):
        resume_state({"_snapshot": {}})


def test_torchdata_nodes_carry_the_state(filled: forebay.Bucket) -> None:
    nodes = pytest.importorskip("torchdata.nodes")
    sampler = DistributedShardSampler(MapDataset(filled), shuffle=False)

    def make() -> Any:
        dataset = MapDataset(filled)
        indices = nodes.SamplerWrapper(DistributedShardSampler(dataset, seed=9))
        return nodes.Loader(nodes.Mapper(indices, lambda index: dataset[index][0]))

    assert len(sampler) == TOTAL
    whole = list(make())
    first = make()
    iterator = iter(first)
    before = [next(iterator) for _ in range(10)]
    second = make()
    second.load_state_dict(first.state_dict())
    assert before + list(second) == whole
    assert sorted(whole) == NAMES
