"""Passes are independent of copies, other ranks, passes side by side, and settings chosen since."""

from __future__ import annotations

import copy
import itertools
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import forebay
from forebay_torch import (
    DistributedShardSampler,
    IterableDataset,
    MapDataset,
    MixedDataset,
    ShardReader,
    ThreadLoader,
    order,
)
from shard_files import tar

NAMES = [f"{i:02}" for i in range(20)]
# States that users saved name an order by its seed and epoch: (seed 0, epoch 0) and (4, 3) of 8.
GOLDEN = ([2, 4, 3, 5, 1, 0, 6, 7], [0, 3, 6, 5, 2, 7, 1, 4])
GOLDEN_STATE = {
    "forebay": 1,
    "epoch": 3,
    "seed": 4,
    "consumed": 5,
    "total": 8,
    "order": "455932503e586f6a",
}


@pytest.fixture(scope="module")
def filled(cluster: Any) -> Iterator[forebay.Bucket]:
    bucket = forebay.Client(cluster.endpoint, timeout=20).bucket("passes").create()
    bucket.put_many((name, b"x") for name in NAMES)
    yield bucket
    bucket.delete()


def stream(bucket: forebay.Bucket) -> IterableDataset:
    return IterableDataset(bucket, shuffle=True, seed=4, batch_size=2)


def names(samples: Any, count: int | None = None) -> list[str]:
    return [name for name, _ in itertools.islice(samples, count)]


def batch_names(batches: Any, count: int | None = None) -> list[str]:
    return [name for found, _ in itertools.islice(batches, count) for name in found]


def epoch_of(number: int) -> list[str]:
    return [NAMES[row] for row in order.epoch_order(20, 4, number).tolist()]


def test_the_order_of_a_seed_and_an_epoch_never_changes() -> None:
    assert order.epoch_order(8, 0, 0).tolist() == GOLDEN[0]
    assert order.epoch_order(8, 4, 3).tolist() == GOLDEN[1]
    sampler = DistributedShardSampler(range(8), seed=4)
    sampler.set_epoch(3)
    assert list(sampler) == GOLDEN[1]


def test_a_state_that_an_earlier_version_saved_loads() -> None:
    sampler = DistributedShardSampler(range(8), seed=4)
    sampler.load_state_dict(GOLDEN_STATE)
    assert list(sampler) == GOLDEN[1][5:]
    assert sampler.state_dict() == {**GOLDEN_STATE, "consumed": 8}


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda d: pickle.loads(pickle.dumps(d))])
def test_a_copy_goes_on_by_itself(filled: forebay.Bucket, copied: Any) -> None:
    dataset = stream(filled)
    samples = iter(dataset)
    names(samples, 5)
    twin = copied(dataset)
    assert twin.state_dict() == dataset.state_dict()
    names(samples, 3)
    twin.set_epoch(7)
    assert dataset.state_dict()["consumed"] == 8
    assert (twin.state_dict()["epoch"], twin.state_dict()["consumed"]) == (7, 0)
    assert names(samples) == epoch_of(0)[8:]
    assert names(twin) == epoch_of(7)


def test_passes_side_by_side_do_not_count_for_each_other(filled: forebay.Bucket) -> None:
    dataset = stream(filled)
    first, second = iter(dataset), iter(dataset)
    assert names(first, 5) + names(first, 1) == epoch_of(0)[:6]
    assert names(second, 3) == epoch_of(0)[:3]
    names(first, 4)
    assert dataset.state_dict()["consumed"] == 3, "the latest pass"
    threads = [ThreadLoader(dataset, batch_size=2, threads=2) for _ in range(2)]
    loops = [iter(loader) for loader in threads]
    assert batch_names(loops[0], 3) == batch_names(loops[1], 2) + epoch_of(0)[4:6]
    assert [loader.state_dict()["consumed"] for loader in threads] == [6, 4]
    for loop in loops:
        loop.close()  # type: ignore[attr-defined]


def test_an_epoch_that_is_chosen_in_mid_pass_is_that_of_the_next_one(
    filled: forebay.Bucket,
) -> None:
    dataset = stream(filled)
    samples = iter(dataset)
    head = names(samples, 4)
    dataset.set_epoch(0)
    assert dataset.state_dict()["consumed"] == 4, "the epoch under way"
    dataset.set_epoch(1)
    assert dataset.state_dict()["epoch"] == 1
    assert head + names(samples) == epoch_of(0)
    assert names(dataset) == epoch_of(1)


@pytest.mark.parametrize("persistent", [False, True])
def test_a_pass_of_workers_that_was_left_early_does_not_take_what_is_loaded_then(
    filled: forebay.Bucket, persistent: bool
) -> None:
    dataset = stream(filled)
    loader = DataLoader(dataset, batch_size=2, num_workers=2, persistent_workers=persistent)
    for _ in range(3):
        # The seed of workers comes again after manual_seed: it does not distinguish passes.
        torch.manual_seed(0)
        batches = iter(loader)
        head = batch_names(batches, 2)
        dataset.load_state_dict(dataset.state_dict(num_samples=len(head)))
        del batches
        torch.manual_seed(0)
        assert head + batch_names(loader) == epoch_of(0)
        torch.manual_seed(0)
        assert batch_names(loader) == epoch_of(0), "the pass after it is whole"


def test_set_epoch_of_the_epoch_under_way_keeps_the_count_of_a_sampler() -> None:
    sampler = DistributedShardSampler(range(20), seed=4, rank=0, world_size=1)
    entries = iter(sampler)
    head = list(itertools.islice(entries, 7))
    sampler.set_epoch(0)
    state = sampler.state_dict()
    assert state["consumed"] == 7
    resumed = DistributedShardSampler(range(20), seed=4, rank=0, world_size=1)
    resumed.load_state_dict(state)
    assert head + list(resumed) == order.epoch_order(20, 4, 0).tolist()


def test_a_forked_rank_has_a_place_of_its_own(filled: forebay.Bucket) -> None:
    dataset = stream(filled)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        dataset.set_epoch(5)
        names(dataset, 1)
        os.write(writer, repr(dataset.state_dict()["epoch"]).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 9) == b"5"
    assert dataset.state_dict()["epoch"] == 0
    os.close(reader)
    os.close(writer)


def test_many_datasets_need_few_descriptors(filled: forebay.Bucket) -> None:
    shards = filled.object("s.tar")
    shards.put(tar([("a.txt", b"x")]))
    source = MapDataset(filled)
    try:
        before = len(list(Path("/proc/self/fd").iterdir()))
        kept = [MixedDataset([source]) for _ in range(200)]
        kept += [ShardReader(filled) for _ in range(20)]
        loader = DataLoader(kept[0], batch_size=None, num_workers=1)  # forks: all get their memory
        next(iter(loader))
        assert len(list(Path("/proc/self/fd").iterdir())) - before < 40
    finally:
        shards.delete()


@pytest.mark.parametrize("workers,persistent", [(0, False), (2, False), (2, True)])
def test_after_a_finished_pass_the_chosen_epoch_is_that_of_the_next_one(
    filled: forebay.Bucket, workers: int, persistent: bool
) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def loader(dataset: IterableDataset) -> Any:
        # The workers read the whole epoch ahead.
        return stateful(dataset, batch_size=10, num_workers=workers, persistent_workers=persistent)

    finished = loader(IterableDataset(filled, shuffle=True, seed=4, batch_size=10))
    assert sorted(batch_names(finished)) == NAMES
    dataset = IterableDataset(filled, shuffle=True, seed=4, batch_size=10)
    resumed = loader(dataset)
    resumed.load_state_dict(finished.state_dict())
    for epoch in (1, 2):
        dataset.set_epoch(epoch)
        assert batch_names(resumed) == epoch_of(epoch)
