"""MixedDataset over datasets that need no cluster, and over buckets."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset

import forebay
from forebay_torch import MapDataset, MixedDataset, ThreadLoader

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


class Letters(Dataset[str]):
    """``a0``, ``a1``, …"""

    def __init__(self, letter: str, total: int) -> None:
        self.letter = letter
        self.total = total

    def __len__(self) -> int:
        return self.total

    def __getitem__(self, index: int) -> str:
        return f"{self.letter}{index}"


def mixed(*sizes: int, **options: Any) -> MixedDataset:
    return MixedDataset(
        [Letters(letter, size) for letter, size in zip("abcdef", sizes, strict=False)], **options
    )


def shares(samples: list[str]) -> Counter[str]:
    return Counter(sample[0] for sample in samples)


def test_by_default_an_epoch_has_as_many_samples_as_the_datasets() -> None:
    dataset = mixed(30, 10)
    assert len(dataset) == 40 == len(list(dataset))


def test_weights_are_the_shares_of_samples() -> None:
    found = shares(list(mixed(10, 500, weights=[3, 1], epoch_size=4000)))
    assert found.total() == 4000
    assert 2800 < found["a"] < 3200
    exact = list(mixed(10, 500, weights=[3, 1], epoch_size=400, batching_method="stratified"))
    for start in range(0, 400, 40):
        assert 29 <= shares(exact[start : start + 40])["a"] <= 31
    assert set(shares(list(mixed(3, 3, weights=[0, 1])))) == {"b"}


def test_no_sample_comes_again_before_all_of_its_dataset_came() -> None:
    found = [s for s in mixed(7, 50, weights=[1, 1], epoch_size=100) if s[0] == "a"]
    for start in range(0, len(found) - 7, 7):
        assert len(set(found[start : start + 7])) == 7
    assert found[:7] != found[7:14], "each round has an order of its own"
    plain = mixed(3, 4, shuffle=False, epoch_size=20, batching_method="stratified")
    assert [s for s in plain if s[0] == "a"][:4] == ["a0", "a1", "a2", "a0"]


def test_per_stream_batches_are_of_one_dataset() -> None:
    dataset = mixed(40, 40, 40, batching_method="per_stream", batch_size=6)
    for workers in (0, 2):
        batches = list(DataLoader(dataset, batch_size=6, num_workers=workers))
        assert len(batches) == 20
        assert all(len(shares(batch)) == 1 for batch in batches)
    ranks = [
        mixed(40, 40, batching_method="per_stream", batch_size=5, rank=r, world_size=2)
        for r in range(2)
    ]
    for step in zip(*(DataLoader(rank, batch_size=5) for rank in ranks), strict=True):
        assert len(shares([sample for batch in step for sample in batch])) == 1


def test_epochs_and_seeds_differ_and_nothing_else_does() -> None:
    def epoch(number: int, seed: int = 1) -> list[str]:
        dataset = mixed(20, 20, seed=seed)
        dataset.set_epoch(number)
        return list(dataset)

    assert epoch(0) == epoch(0)
    assert len({tuple(epoch(0)), tuple(epoch(1)), tuple(epoch(0, seed=2))}) == 3


def test_a_sample_may_carry_the_name_of_its_stream() -> None:
    for number, sample in mixed(4, 4, return_stream=True):
        assert "ab"[number] == sample[0]


@settings(deadline=None, max_examples=40)
@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(0, 6),
    st.sampled_from(["random", "stratified"]),
)
def test_it_goes_on_with_another_number_of_ranks(
    world: int, after: int, stop: int, method: str
) -> None:
    def ranks(count: int) -> list[MixedDataset]:
        return [
            mixed(9, 13, rank=r, world_size=count, batching_method=method) for r in range(count)
        ]

    whole = Counter(mixed(9, 13, batching_method=method))
    seen: Counter[str] = Counter()
    states = []
    for dataset in ranks(world):
        seen.update(itertools.islice(iter(dataset), stop))
        states.append(dataset.state_dict(num_samples=stop))
    for dataset in ranks(after):
        dataset.load_state_dict(states[0])
        if stop * world < 22:
            seen.update(dataset)
    assert seen == whole


def test_workers_and_threads_deliver_the_same_order() -> None:
    whole = [s for batch in DataLoader(mixed(30, 11), batch_size=4) for s in batch]
    parallel = DataLoader(mixed(30, 11, batch_size=4), batch_size=4, num_workers=3)
    assert [s for batch in parallel for s in batch] == whole
    threads = ThreadLoader(mixed(30, 11), batch_size=4, threads=3)
    assert [s for batch in threads for s in batch] == whole


def test_objects_of_several_buckets_are_fetched_together(
    client: forebay.Client, bucket: forebay.Bucket
) -> None:
    bucket.put_many((f"{letter}/{i}", letter.encode()) for letter in "xy" for i in range(30))
    parts = [MapDataset(bucket, prefix_map={bucket: f"{letter}/"}) for letter in "xy"]
    found = list(MixedDataset(parts, weights=[2, 1], epoch_size=45, batching_method="stratified"))
    assert Counter(content for _, content in found) == {b"x": 30, b"y": 15}
    assert len({name for name, _ in found}) == 45
    assert parts[0].stats().requests == 1


@pytest.mark.parametrize(
    "sizes,options,message",
    [
        ((), {}, "needs datasets with samples"),
        ((3, 0), {}, "needs datasets with samples"),
        ((3, 3), {"weights": [1]}, "1 weights for 2 datasets"),
        ((3, 3), {"weights": [1, -1]}, "weights are not negative"),
        ((3, 3), {"weights": [0, 0]}, "one is positive"),
        ((3,), {"batching_method": "shuffled"}, "batching_method is"),
        ((3,), {"epoch_size": -1}, "epoch_size must not be negative"),
    ],
)
def test_what_makes_no_sense_is_refused(
    sizes: tuple[int, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        mixed(*sizes, **options)
