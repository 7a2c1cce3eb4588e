"""A reader of shards goes on exactly, in any shape: the plan, and real loaders."""

from __future__ import annotations

import itertools
import pickle
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import forebay
from forebay_torch import ShardReader, ThreadLoader, resume_state
from forebay_torch.shard_plan import Item, Pass, deal, delivered_by, left_after, length, shuffled
from shard_files import tar

pytestmark = pytest.mark.filterwarnings(
    "ignore:This DataLoader will create", "ignore:.*shards for .* ranks"
)

SHAPE = st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), st.integers(0, 25))


def delivered_in(
    items: list[Item], counts: list[int], made: Pass, buffer: int, seed: int
) -> list[tuple[int, int]]:
    """Returns the samples that ranks deliver in a pass; a loader takes batches of its workers in turn."""
    taken = []
    for rank in range(made.world_size):
        batches = []
        for worker in range(made.workers):
            pairs: Iterator[tuple[int, int]] = (
                (item.row, number)
                for item in deal(items, rank, made.world_size, worker, made.workers)
                for number in (range(counts[item.row]) if item.samples is None else item.samples)
            )
            if buffer > 1:
                pairs = shuffled(pairs, buffer, random.Random(f"{seed}{rank}{worker}"))
            samples = list(pairs)
            steps = range(0, len(samples), made.block)
            batches.append([samples[start : start + made.block] for start in steps])
        turns = itertools.zip_longest(*batches, fillvalue=[])
        flat = [pair for turn in turns for batch in turn for pair in batch]
        taken += flat[: made.delivered]
    return taken


@settings(deadline=None)
@given(st.lists(st.integers(0, 12), max_size=9), st.lists(SHAPE, max_size=4), st.integers(0, 5))
def test_any_chain_of_passes_delivers_each_sample_once(
    counts: list[int], shapes: list[tuple[int, int, int, int]], buffer: int
) -> None:
    items = [Item(row) for row in range(len(counts))]
    seen: Counter[tuple[int, int]] = Counter()
    for seed, shape in enumerate(shapes):
        made = Pass(*shape)
        seen.update(delivered_in(items, counts, made, buffer, seed))

        def generator(rank: int, worker: int, seed: int = seed) -> random.Random:
            return random.Random(f"{seed}{rank}{worker}")

        items = left_after(items, made, counts.__getitem__, buffer, generator)
    for item in items:
        numbers = range(counts[item.row]) if item.samples is None else item.samples
        assert len(numbers) == length(item, counts.__getitem__)
        seen.update((item.row, number) for number in numbers)
    assert seen == Counter((row, n) for row, count in enumerate(counts) for n in range(count))


@given(st.lists(st.integers(0, 30), min_size=1, max_size=6), st.integers(1, 7), st.integers(0, 150))
def test_a_loader_takes_batches_of_its_workers_in_turn(
    lengths: list[int], block: int, delivered: int
) -> None:
    left, done, todo = list(lengths), [0] * len(lengths), delivered
    while todo and any(left):
        for worker in range(len(left)):
            taken = min(block, left[worker], todo)
            left[worker] -= taken
            done[worker] += taken
            todo -= taken
    assert delivered_by(lengths, block, delivered) == done


COUNTS = [3, 11, 1, 7, 5, 9, 4]
KEYS = [f"{shard}{i:02}" for shard, count in enumerate(COUNTS) for i in range(count)]
SIZE = 3


@pytest.fixture(scope="module")
def shards(cluster: Any) -> Iterator[forebay.Bucket]:
    bucket = forebay.Client(cluster.endpoint, timeout=20).bucket("resumed-shards").create()
    for shard, count in enumerate(COUNTS):
        members = ((f"{shard}{i:02}.{ext}", b"x") for i in range(count) for ext in ("a", "b"))
        bucket.object(f"{shard}.tar").put(tar(members))
    yield bucket
    bucket.delete()


def reader(bucket: forebay.Bucket, rank: int = 0, world: int = 1, **options: Any) -> ShardReader:
    options = {"shuffle_shards": True, "seed": 6, "batch_size": SIZE, **options}
    return ShardReader(bucket, rank=rank, world_size=world, **options)


def loader(dataset: Any, workers: int) -> DataLoader[Any]:
    return DataLoader(dataset, batch_size=SIZE, num_workers=workers)


def keys(batches: Any) -> list[str]:
    return [key for found, _ in batches for key in found]


@pytest.mark.parametrize("buffer", [0, 5])
@pytest.mark.parametrize(
    "first,stop,second",
    [
        ((1, 0), 4, (2, 2)),
        ((1, 2), 6, (1, 3)),
        ((2, 1), 3, (1, 0)),
        ((2, 2), 2, (3, 1)),
        ((3, 1), 4, (1, 2)),
        ((2, 3), 0, (2, 0)),
    ],
)
def test_a_shard_reader_goes_on_with_other_ranks_and_workers(
    shards: forebay.Bucket,
    first: tuple[int, int],
    stop: int,
    second: tuple[int, int],
    buffer: int,
) -> None:
    world, workers = first
    seen, states = [], []
    for rank in range(world):
        dataset = reader(shards, rank, world, shuffle_buffer=buffer)
        dataset.set_epoch(1)
        batches = iter(loader(dataset, workers))
        seen += keys(itertools.islice(batches, stop))
        states.append(dataset.state_dict(num_samples=stop * SIZE))
    assert all(state == states[0] for state in states)
    following = []
    for rank in range(second[0]):
        dataset = reader(shards, rank, second[0], shuffle_buffer=buffer)
        dataset.load_state_dict(pickle.loads(pickle.dumps(states[0])))
        batches = loader(dataset, second[1])
        seen += keys(batches)
        following += keys(batches)
    assert sorted(seen) == KEYS
    assert sorted(following) == KEYS, "the epoch after it is whole again"


def test_an_epoch_may_be_left_more_than_once(shards: forebay.Bucket) -> None:
    seen: list[str] = []
    state = None
    for workers, steps in [(2, 3), (0, 2), (3, 4), (1, 1000)]:
        dataset = reader(shards)
        if state is not None:
            dataset.load_state_dict(state)
        batches = iter(loader(dataset, workers))
        taken = keys(itertools.islice(batches, steps))
        seen += taken
        state = dataset.state_dict(num_samples=len(taken))
    assert sorted(seen) == KEYS
    assert state is not None and len(repr(state)) < 250
    dataset = reader(shards)
    dataset.load_state_dict(state)
    assert dataset.state_dict()["epoch"] == 1
    assert sorted(keys(loader(dataset, 0))) == KEYS, "what was over goes on with the next epoch"


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("buffer", [0, 4])
def test_a_stateful_data_loader_reads_on_in_the_same_order_and_in_other_shapes(
    shards: forebay.Bucket, workers: int, buffer: int
) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def make(count: int) -> Any:
        dataset = reader(shards, shuffle_buffer=buffer)
        return stateful(dataset, batch_size=SIZE, num_workers=count)

    whole = keys(make(workers))
    first = make(workers)
    before = keys(itertools.islice(iter(first), 5))
    state = pickle.loads(pickle.dumps(first.state_dict()))
    if workers or not buffer:
        same = make(workers)
        same.load_state_dict(state)
        assert before + keys(same) == whole
        assert len(keys(same)) == len(KEYS)
    for other in (0, 3):
        dataset = reader(shards, shuffle_buffer=buffer)
        dataset.load_state_dict(resume_state(state))
        assert sorted(before + keys(loader(dataset, other))) == KEYS


def test_threads_resume_too(shards: forebay.Bucket) -> None:
    first = ThreadLoader(reader(shards), batch_size=4, threads=3)
    before = keys(itertools.islice(iter(first), 5))
    second = ThreadLoader(reader(shards), batch_size=2, threads=2)
    second.load_state_dict(first.state_dict())
    assert sorted(before + keys(second)) == KEYS


def test_a_resampled_reader_goes_on_in_a_stateful_loader_only(shards: forebay.Bucket) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def make() -> Any:
        return stateful(reader(shards, resampled=True), batch_size=SIZE, num_workers=1)

    whole = keys(itertools.islice(iter(make()), 12))
    first = make()
    before = keys(itertools.islice(iter(first), 5))
    second = make()
    second.load_state_dict(first.state_dict())
    assert before + keys(itertools.islice(iter(second), 7)) == whole
    with pytest.raises(TypeError, match="no place in it"):
        reader(shards, resampled=True).state_dict(num_samples=3)


def test_a_reader_without_the_batch_size_of_the_loader_refuses_the_state(shards: forebay.Bucket) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    without_batch_size = stateful(reader(shards, batch_size=1), batch_size=SIZE, num_workers=2)
    next(iter(without_batch_size))
    state = resume_state(without_batch_size.state_dict())
    with pytest.raises(ValueError, match="batch_size of the loader"):
        reader(shards, batch_size=1).load_state_dict(state)
    with pytest.raises(ValueError, match="not one of a ShardReader"):
        plain = {key: value for key, value in state.items() if key != "passes"}
        reader(shards).load_state_dict(plain)
