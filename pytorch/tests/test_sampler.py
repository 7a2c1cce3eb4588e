"""DynamicBatchSampler over listings that need no cluster."""

from __future__ import annotations

import time
import warnings
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from forebay import Listing
from forebay_torch import DynamicBatchSampler

MB = 1_000_000


class Source:
    """The part of a dataset that the sampler uses."""

    def __init__(self, sizes: list[int]) -> None:
        self.objects = Listing.from_pairs((f"object-{i}", size) for i, size in enumerate(sizes))


def batches(sizes: list[int], limit: float, **options: Any) -> list[list[int]]:
    sampler = DynamicBatchSampler(Source(sizes), limit, **options)
    found = list(sampler)
    assert len(sampler) == len(found)
    return found


def test_the_listings_of_the_article_ten_objects_of_one_megabyte() -> None:
    assert batches([MB] * 10, 4 * MB) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert batches([MB] * 10, 3 * MB) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]


def test_a_batch_that_fits_exactly_is_full() -> None:
    assert batches([3, 2, 5, 1], 5) == [[0, 1], [2], [3]]
    assert batches([4, 2, 4], 5.5) == [[0], [1], [2]]


def test_samples_of_no_bytes_are_kept() -> None:
    assert batches([0, 5, 0, 0, 5, 0], 5) == [[0, 1, 2, 3], [4, 5]]
    assert batches([0, 0], 5) == [[0, 1]]
    assert batches([], 5) == []


def test_oversized_samples_are_left_out_with_one_warning() -> None:
    warned = r"'object-1' \(9 bytes\) and 1 more.*max_batch_size 5"
    with pytest.warns(UserWarning, match=warned) as seen:
        assert list(DynamicBatchSampler(Source([2, 9, 2, 7, 2]), 5)) == [[0, 2], [4]]
    assert len(seen) == 1


def test_oversized_samples_may_have_a_batch_of_their_own() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = batches([2, 9, 2, 7, 2, 8], 5, allow_oversized_samples=True)
        assert found == [[1], [0, 2], [3], [4], [5]]
        assert batches([9, 8], 5, allow_oversized_samples=True) == [[0], [1]]


@pytest.mark.parametrize("last,kept", [(8, False), (9, True)])
def test_drop_last_keeps_a_last_batch_above_the_saturation(last: int, kept: bool) -> None:
    found = batches([10, last], 10, drop_last=True, saturation_factor=0.8)
    assert found == ([[0], [1]] if kept else [[0]])


def test_drop_last_keeps_full_batches_and_the_rest_is_left_out() -> None:
    assert batches([MB] * 10, 4 * MB, drop_last=True) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert batches([MB] * 8, 4 * MB, drop_last=True) == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize("bad", [-0.1, 1.1])
def test_a_saturation_outside_0_to_1_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="saturation_factor must be between 0 and 1"):
        DynamicBatchSampler(Source([1]), 5, saturation_factor=bad)


@pytest.mark.parametrize("bad", [0, -1, float("nan")])
def test_a_batch_size_that_is_not_positive_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="max_batch_size must be positive"):
        DynamicBatchSampler(Source([1]), bad)


def test_shuffle_differs_by_epoch_and_not_between_runs() -> None:
    source = Source([1] * 100)
    one, two = (DynamicBatchSampler(source, 7, shuffle=True, seed=3) for _ in range(2))
    first, second = list(one), list(one)
    assert first != second
    assert sorted(i for batch in first for i in batch) == list(range(100))
    assert [list(two), list(two)] == [first, second]
    two.set_epoch(0)
    assert list(two) == first
    two.set_epoch(1)
    assert list(two) == second
    assert list(DynamicBatchSampler(source, 7, shuffle=True, seed=4)) != first


@given(
    st.lists(st.integers(0, 60), max_size=80),
    st.integers(1, 50),
    st.booleans(),
    st.booleans(),
    st.integers(0, 3),
)
def test_any_sizes(
    sizes: list[int], limit: int, oversized: bool, shuffle: bool, epoch: int
) -> None:
    sampler = DynamicBatchSampler(
        Source(sizes), limit, allow_oversized_samples=oversized, shuffle=shuffle
    )
    sampler.set_epoch(epoch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(sampler)
    assert len(sampler) == len(found)
    wanted = [i for i, size in enumerate(sizes) if oversized or size <= limit]
    assert sorted(i for batch in found for i in batch) == wanted
    for batch in found:
        assert batch
        assert sum(sizes[i] for i in batch) <= limit or len(batch) == 1
    ordinary = [batch for batch in found if sum(sizes[i] for i in batch) <= limit]
    for batch, after in zip(ordinary, ordinary[1:], strict=False):
        assert sum(sizes[i] for i in batch) + sizes[after[0]] > limit


def test_the_time_is_linear_and_short() -> None:
    source = Source([])
    source.objects = Listing.concat([Listing.from_pairs([("x", 1000)] * 1000)] * 1000)
    sampler = DynamicBatchSampler(source, 50_000, shuffle=True)
    taken = []
    for _ in range(3):
        started = time.perf_counter()
        count = sum(1 for _ in sampler)
        taken.append(time.perf_counter() - started)
    assert count == 20_000
    assert min(taken) < 2, f"a million samples took {taken} s"
    started = time.perf_counter()
    sampler.state_dict()
    state = sampler.state_dict()
    sampler.load_state_dict(state)
    assert time.perf_counter() - started < 2


def test_a_cost_function_decides_instead_of_the_size() -> None:
    tokens = {f"object-{i}": i + 0.5 for i in range(6)}
    with pytest.warns(UserWarning, match=r"'object-5' \(cost 5.5\)"):
        found = batches([MB] * 6, 5, cost_fn=lambda entry: tokens[entry.name])
    assert found == [[0, 1, 2], [3], [4]]
    assert batches([1, 2, 3], 5, cost_fn=lambda entry: 5 - entry.size) == [[0], [1, 2]]
    with pytest.raises(ValueError, match="'object-0' costs -1.0"):
        batches([1], 5, cost_fn=lambda entry: -1)


def test_padded_batches_cost_their_dearest_sample_times_their_length() -> None:
    assert batches([3, 1, 1, 4, 2, 2], 8, padded=True) == [[0, 1], [2, 3], [4, 5]]
    assert batches([2, 2, 2, 2, 2], 8, padded=True) == [[0, 1, 2, 3], [4]]


def test_padding_costs_less_with_buckets_of_similar_length() -> None:
    sizes = [(i * 37) % 100 + 1 for i in range(500)]

    def padding(**options: Any) -> int:
        found = batches(sizes, 1000, padded=True, shuffle=True, **options)
        assert sorted(i for batch in found for i in batch) == list(range(500))
        assert all(len(b) * max(sizes[i] for i in b) <= 1000 for b in found)
        return sum(len(b) * max(sizes[i] for i in b) - sum(sizes[i] for i in b) for b in found)

    assert padding(bucketing=10) < padding() / 4


def test_buckets_take_turns_as_their_batches_fill() -> None:
    found = batches([1, 9, 1, 9, 1, 9, 1, 9], 10, bucketing=2, max_samples=2)
    assert found == [[1], [0, 2], [3], [5], [4, 6], [7]]


def test_a_batch_has_at_most_max_samples() -> None:
    assert batches([1] * 7, 100, max_samples=3) == [[0, 1, 2], [3, 4, 5], [6]]
    assert batches([4, 4, 4, 1], 5, max_samples=2) == [[0], [1], [2, 3]]


def test_empty_samples_may_be_left_out() -> None:
    assert batches([0, 3, 0, 2], 5, keep_empty=False) == [[1, 3]]


def test_a_time_slice_ends_a_batch_that_takes_too_long() -> None:
    def slow(entry: Any) -> float:
        time.sleep(0.03)
        return float(entry.size)

    sampler = DynamicBatchSampler(Source([1] * 6), 100, cost_fn=slow, time_slice=0.05)
    found = list(sampler)
    assert [i for batch in found for i in batch] == list(range(6))
    assert all(1 <= len(batch) <= 2 for batch in found)
    patient = DynamicBatchSampler(Source([1] * 6), 4, time_slice=60)
    assert list(patient) == [[0, 1, 2, 3], [4, 5]]
    with pytest.raises(TypeError, match="no len"):
        len(patient)
    with pytest.raises(ValueError, match="one rank"):
        DynamicBatchSampler(Source([1]), 4, time_slice=1, rank=0, world_size=2)


@pytest.mark.parametrize(
    "option,bad", [("max_samples", 0), ("bucketing", -1), ("time_slice", 0), ("equal_length", "x")]
)
def test_settings_that_make_no_sense_are_refused(option: str, bad: Any) -> None:
    with pytest.raises(ValueError, match=option):
        DynamicBatchSampler(Source([1]), 5, **{option: bad})


def test_works_with_plain_lists_of_pairs() -> None:
    source = Source([])
    source.objects = [(str(i), i) for i in range(6)]  # type: ignore[assignment]
    assert list(DynamicBatchSampler(source, 5)) == [[0, 1, 2], [3], [4], [5]]


def test_a_data_loader_takes_its_batches() -> None:
    class Squares(torch.utils.data.Dataset[int]):
        objects = Source([1] * 10).objects

        def __getitem__(self, index: int) -> int:
            return index * index

    dataset = Squares()
    loader = torch.utils.data.DataLoader(dataset, batch_sampler=DynamicBatchSampler(dataset, 4))
    assert [batch.tolist() for batch in loader] == [[0, 1, 4, 9], [16, 25, 36, 49], [64, 81]]
    assert len(loader) == 3
