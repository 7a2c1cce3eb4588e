"""Orders and shares of an epoch: pure, so tested over many sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay_torch import order

COUNTS = st.integers(1, 9)


@given(st.integers(0, 300), COUNTS, COUNTS)
def test_every_position_is_somebodys_exactly_once(length: int, world: int, workers: int) -> None:
    taken = [
        position
        for rank in range(world)
        for worker in range(workers)
        for position in order.share(
            length, rank=rank, world_size=world, worker=worker, workers=workers
        )
    ]
    assert sorted(taken) == list(range(length))


@given(st.integers(0, 300), COUNTS, COUNTS)
def test_a_ranks_share_is_the_same_for_any_number_of_workers(
    length: int, world: int, workers: int
) -> None:
    whole = order.share(length, rank=world - 1, world_size=world, worker=0, workers=1)
    parts = [
        order.share(length, rank=world - 1, world_size=world, worker=worker, workers=workers)
        for worker in range(workers)
    ]
    assert sorted(position for part in parts for position in part) == list(whole)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(st.integers(0, 500), st.integers(), st.integers())
def test_an_epochs_order_is_a_permutation_made_from_seed_and_epoch(
    length: int, seed: int, epoch: int
) -> None:
    once = order.epoch_order(length, seed, epoch).tolist()
    assert sorted(once) == list(range(length))
    assert once == order.epoch_order(length, seed, epoch).tolist()


def test_seeds_and_epochs_differ() -> None:
    orders = {
        tuple(order.epoch_order(50, seed, epoch).tolist())
        for seed in range(5)
        for epoch in range(5)
    }
    assert len(orders) == 25


@pytest.mark.parametrize("rank,world,worker,workers", [(2, 2, 0, 1), (-1, 2, 0, 1), (0, 1, 3, 3)])
def test_a_share_nobody_has_is_refused(rank: int, world: int, worker: int, workers: int) -> None:
    with pytest.raises(ValueError, match="is not one of"):
        order.share(10, rank=rank, world_size=world, worker=worker, workers=workers)


@given(st.integers(1, 300), COUNTS, COUNTS, st.sampled_from(["none", "wrap", "pad", "drop"]))
def test_what_stands_at_positions_is_the_same_however_they_are_kept(
    length: int, world: int, workers: int, equal: order.EqualLength
) -> None:
    epoch = order.epoch_order(length, 7, 1)
    mine = order.share(
        length, rank=world - 1, world_size=world, workers=workers, block=2, equal_length=equal
    )
    assert order.chosen(epoch, mine).tolist() == [int(epoch[position]) for position in mine]
