"""Every sample exactly once, whatever the shape of the job and wherever it stopped: the planner
and the samplers, which need no cluster."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, Dataset

from forebay import Listing
from forebay_torch import DistributedShardSampler, DynamicBatchSampler, order
from forebay_torch.order import EqualLength

SHAPES = [(world, workers) for world in range(1, 5) for workers in range(5)]


def rank_batches(
    total: int, start: int, rank: int, world: int, workers: int, size: int, equal: EqualLength
) -> list[list[int]]:
    """The batches of a rank in the order of a DataLoader: of each worker in turn; without workers
    the loader's own process is the only one."""
    queues = []
    workers = max(1, workers)
    for worker in range(workers):
        mine = order.share(
            total,
            rank=rank,
            world_size=world,
            worker=worker,
            workers=workers,
            start=start,
            block=size,
            equal_length=equal,
        )
        queues.append([list(mine[i : i + size]) for i in range(0, len(mine), size)])
    rounds = itertools.zip_longest(*queues)
    return [batch for batches in rounds for batch in batches if batch is not None]


def steps_of(
    total: int, start: int, shape: tuple[int, int], size: int, equal: EqualLength = "none"
) -> list[list[list[int]]]:
    """Returns the positions that each rank gets in each step."""
    world, workers = shape
    ranks = [rank_batches(total, start, r, world, workers, size, equal) for r in range(world)]
    return [list(step) for step in itertools.zip_longest(*ranks, fillvalue=[])]


def in_order(steps: list[list[list[int]]]) -> list[int]:
    """The positions in the order in which ranks side by side take them."""
    turns = (itertools.zip_longest(*step) for step in steps)
    return [p for step in turns for turn in step for p in turn if p is not None]


@pytest.mark.parametrize("first", SHAPES)
def test_every_stop_and_every_next_shape_gives_each_sample_once_in_the_same_order(
    first: tuple[int, int],
) -> None:
    total, size = 29, 3
    world = first[0]
    before = steps_of(total, 0, first, size)
    assert in_order(before) == list(range(total))
    for stop, second in itertools.product(range(len(before) + 1), SHAPES):
        consumed = min(total, stop * size * world)
        after = steps_of(total, consumed, second, size)
        assert in_order(before[:stop]) + in_order(after) == list(range(total))


@given(
    st.integers(0, 200),
    st.lists(
        st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(1, 7), st.integers(0, 9)),
        min_size=1,
        max_size=4,
    ),
)
def test_any_chain_of_stops_gives_each_sample_once(
    total: int, jobs: list[tuple[int, int, int, int]]
) -> None:
    seen: list[int] = []
    consumed = 0
    for world, workers, size, stop in jobs:
        steps = steps_of(total, consumed, (world, workers), size)
        seen += in_order(steps[:stop])
        consumed = min(total, consumed + stop * size * world)
    seen += in_order(steps_of(total, consumed, (2, 3), 4))
    assert seen == list(range(total))


@given(st.integers(1, 100), st.integers(1, 7), st.integers(1, 5), st.integers(1, 8))
def test_drop_wrap_and_pad_give_every_rank_equally_many_steps(
    total: int, world: int, workers: int, size: int
) -> None:
    for equal in ("drop", "wrap", "pad"):
        ranks = [rank_batches(total, 0, r, world, workers, size, equal) for r in range(world)]
        assert len({tuple(map(len, batches)) for batches in ranks}) == 1
        seen = Counter(p for batches in ranks for batch in batches for p in batch)
        left_out = set(range(total)) - set(seen)
        if equal == "drop":
            assert set(seen.values()) <= {1} and len(left_out) < world
        else:
            assert not left_out and seen.total() - total < world
            more = {p for p, times in seen.items() if times > 1}
            again = set(range(world)) if equal == "wrap" else {total - 1}
            assert more <= again


@given(st.integers(0, 90), st.integers(0, 95), st.integers(1, 5), st.sampled_from(["drop", "wrap"]))
def test_the_count_of_a_rank_is_the_length_of_its_share(
    total: int, start: int, world: int, equal: Any
) -> None:
    for rank in range(world):
        mine = order.share(total, rank=rank, world_size=world, start=start, equal_length=equal)
        assert len(mine) == order.count(
            total, rank=rank, world_size=world, start=start, equal_length=equal
        )


class Numbers(Dataset[int]):
    """A map-style dataset of its own indices."""

    def __init__(self, total: int) -> None:
        self.objects = Listing.from_pairs((f"o{i}", i % 13 + 1) for i in range(total))

    def __len__(self) -> int:
        return len(self.objects)

    def __getitem__(self, index: int) -> int:
        return index


@settings(deadline=None)
@given(
    st.integers(1, 60), st.integers(1, 4), st.integers(1, 4), st.integers(0, 20), st.booleans()
)
def test_a_distributed_sampler_goes_on_with_another_number_of_ranks(
    total: int, world: int, after: int, stop: int, shuffle: bool
) -> None:
    source = Numbers(total)

    def samplers(count: int) -> list[DistributedShardSampler]:
        return [
            DistributedShardSampler(
                source, shuffle=shuffle, seed=7, rank=r, world_size=count, equal_length="none"
            )
            for r in range(count)
        ]

    first = samplers(world)
    for sampler in first:
        sampler.set_epoch(3)
    whole = [list(sampler) for sampler in first]
    seen = [index for taken in whole for index in taken[:stop]]
    state = first[0].state_dict(num_samples=min(stop, len(whole[0])))
    second = samplers(after)
    for sampler in second:
        sampler.load_state_dict(state)
        if stop < len(whole[0]):
            seen += list(sampler)
    assert sorted(seen) == list(range(total))
    # The next epoch is whole again, and the same as without the stop.
    following = [list(sampler) for sampler in second]
    assert sorted(i for taken in following for i in taken) == list(range(total))
    fresh = samplers(after)[0]
    fresh.set_epoch(4)
    assert list(fresh) == following[0]


def test_a_state_is_small_and_the_same_for_every_shape() -> None:
    states = []
    for world, taken in [(1, 12), (2, 6), (4, 3)]:
        sampler = DistributedShardSampler(Numbers(100), rank=0, world_size=world)
        iterator = iter(sampler)
        for _ in range(taken):
            next(iterator)
        states.append(sampler.state_dict())
    assert states[0] == states[1] == states[2]
    assert states[0]["consumed"] == 12
    assert len(repr(states[0])) < 150


def test_loaders_that_ask_ahead_do_not_move_the_epoch() -> None:
    source = Numbers(20)
    sampler = DistributedShardSampler(source, seed=1)
    loader = DataLoader(source, sampler=sampler, batch_size=4, num_workers=2)
    alone = DistributedShardSampler(source, seed=1)
    for _ in range(2):
        assert [i for batch in loader for i in batch.tolist()] == list(alone)


def test_set_epoch_keeps_the_place_of_a_loaded_state() -> None:
    sampler = DistributedShardSampler(Numbers(10), shuffle=False)
    whole = list(sampler)
    for epoch, expected in [(0, whole[6:]), (1, whole)]:
        sampler.load_state_dict(sampler_state(6))
        sampler.set_epoch(epoch)
        assert list(sampler) == expected


def sampler_state(taken: int) -> dict[str, Any]:
    sampler = DistributedShardSampler(Numbers(10), shuffle=False)
    list(sampler)
    return sampler.state_dict(num_samples=taken)


def test_a_state_of_an_epochs_end_goes_on_with_the_next_epoch() -> None:
    sampler = DistributedShardSampler(Numbers(10), shuffle=False)
    sampler.load_state_dict(sampler_state(10))
    assert len(list(sampler)) == 10
    assert sampler.state_dict()["epoch"] == 1
    sampler.load_state_dict(sampler_state(10))
    sampler.set_epoch(0)
    assert list(sampler) == [], "epoch 0 itself is over"
    assert len(list(sampler)) == 10


@pytest.mark.parametrize(
    "kind,drop_last,workers,persistent",
    [
        ("sampler", False, 0, False),
        ("sampler", True, 0, False),
        ("sampler", False, 2, False),
        ("sampler", True, 2, True),
        ("sampler that drops", False, 0, False),
        ("sampler that drops", False, 2, False),
        ("batches", False, 0, False),
        ("batches", False, 2, False),
        ("batches", True, 2, True),
    ],
)
def test_after_a_short_epoch_a_stateful_data_loader_goes_on_with_the_next_one(
    kind: str, drop_last: bool, workers: int, persistent: bool
) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def loader() -> Any:
        # The workers read the three batches of an epoch ahead, and its end.
        source = Numbers(11)
        options: dict[str, Any] = {"num_workers": workers, "persistent_workers": persistent}
        if kind == "batches":
            sampler: Any = DynamicBatchSampler(
                source, 4, cost_fn=lambda _: 1, shuffle=True, seed=3, drop_last=drop_last
            )
            return stateful(source, batch_sampler=sampler, **options)
        sampler = DistributedShardSampler(
            source,
            seed=3,
            rank=1,
            world_size=2,
            equal_length="drop" if kind == "sampler that drops" else "wrap",
        )
        return stateful(source, batch_size=2, sampler=sampler, drop_last=drop_last, **options)

    def epoch(batches: Any, count: int | None = None) -> list[list[int]]:
        return [batch.tolist() for batch in itertools.islice(batches, count)]

    whole = loader()
    expected = [epoch(whole) for _ in range(4)]
    assert len({str(batches) for batches in expected}) == 4
    finished = loader()
    assert epoch(finished) == expected[0]
    resumed = loader()
    resumed.load_state_dict(finished.state_dict())
    assert epoch(resumed) == expected[1]
    again = loader()
    again.load_state_dict(resumed.state_dict())
    assert epoch(again, 1) == expected[2][:1], "left early"
    assert epoch(again) == expected[3]


def test_a_state_of_other_data_is_refused() -> None:
    state = sampler_state(3)
    with pytest.raises(ValueError, match="of 10 entries, of which this one has 11"):
        DistributedShardSampler(Numbers(11), shuffle=False).load_state_dict(state)
    with pytest.raises(ValueError, match="in another order"):
        DistributedShardSampler(Numbers(10)).load_state_dict(state)
    with pytest.raises(ValueError, match="of seed 0, this one has 5"):
        DistributedShardSampler(Numbers(10), shuffle=False, seed=5).load_state_dict(state)
    with pytest.raises(ValueError, match="no state that state_dict"):
        DistributedShardSampler(Numbers(10)).load_state_dict({"yielded": 4})


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 60), st.integers(1, 4), st.integers(1, 4), st.integers(0, 8))
def test_dynamic_batches_resume_with_another_number_of_ranks(
    total: int, world: int, after: int, stop: int
) -> None:
    source = Numbers(total)

    def samplers(count: int) -> list[DynamicBatchSampler]:
        return [
            DynamicBatchSampler(
                source, 20, shuffle=True, seed=2, rank=r, world_size=count, equal_length="none"
            )
            for r in range(count)
        ]

    first = samplers(world)
    whole = [list(sampler) for sampler in first]
    seen = [i for batches in whole for batch in batches[:stop] for i in batch]
    if stop < len(whole[0]):
        state = first[0].state_dict(num_batches=stop)
        for sampler in samplers(after):
            sampler.load_state_dict(state)
            seen += [i for batch in sampler for i in batch]
    assert sorted(seen) == list(range(total))


def test_ranks_get_equally_many_dynamic_batches() -> None:
    source = Numbers(100)
    alone = list(DynamicBatchSampler(source, 30))
    for equal in ("wrap", "drop"):
        samplers = [
            DynamicBatchSampler(source, 30, rank=r, world_size=3, equal_length=equal)
            for r in range(3)
        ]
        ranks = [list(sampler) for sampler in samplers]
        assert [len(batches) for batches in ranks] == [len(s) for s in samplers]
        assert len({len(batches) for batches in ranks}) == 1
        dealt = [batch for step in zip(*ranks, strict=True) for batch in step]
        expected = (alone + alone)[: len(dealt)]
        assert dealt == expected


def test_a_plain_batch_sampler_takes_it() -> None:
    source = Numbers(10)
    sampler = DistributedShardSampler(source, shuffle=False)
    batches = BatchSampler(sampler, 4, drop_last=False)
    assert list(batches) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert len(batches) == 3
