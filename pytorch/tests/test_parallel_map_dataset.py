"""Large objects by several ranges at a time."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import forebay
from forebay_torch import ParallelMapDataset, collate
from forebay_torch.compat.aistore import AISParallelMapDataset

LARGE_CONTENT = random.Random(1).randbytes((5 << 20) + 7)


@pytest.fixture
def filled(bucket: forebay.Bucket) -> forebay.Bucket:
    bucket.put_many([("empty", b""), ("large", LARGE_CONTENT), ("small", b"small")])
    return bucket


@pytest.mark.parametrize("kind", [ParallelMapDataset, AISParallelMapDataset])
def test_parallel_map_dataset_hands_out_name_and_buffer(filled: Any, kind: Any) -> None:
    dataset = kind(filled, num_workers=16)
    assert dataset.num_workers == 16
    assert [dataset[i] for i in range(3)] == [
        ("empty", b""),
        ("large", LARGE_CONTENT),
        ("small", b"small"),
    ]
    assert isinstance(dataset[1][1], bytearray)
    with pytest.raises(IndexError, match="index must be in bounds of dataset"):
        dataset[3]


def test_large_objects_come_by_concurrent_ranges(filled: Any, cluster: Any) -> None:
    dataset = ParallelMapDataset(filled, num_workers=4)
    before = cluster.count("forebay_batch_entries_total")
    assert dataset[1][1] == LARGE_CONTENT
    assert cluster.count("forebay_batch_entries_total") - before == 4


def test_the_buffer_of_a_large_object_becomes_a_tensor_without_a_copy(filled: Any) -> None:
    name, content = ParallelMapDataset(filled)[1]
    tensor = torch.frombuffer(content, dtype=torch.uint8)
    content[0] ^= 255
    assert tensor[0] == content[0] and len(tensor) == len(LARGE_CONTENT)


def test_workers_hand_buffers_over(filled: Any) -> None:
    loader = DataLoader(ParallelMapDataset(filled), batch_size=3, num_workers=2, collate_fn=collate)
    (batch,) = list(loader)
    assert batch.names == ["empty", "large", "small"]
    assert bytes(batch[1].numpy()) == LARGE_CONTENT


@pytest.mark.parametrize("workers", [0, 2])
def test_torchs_own_collation_keeps_buffers_whole(bucket: forebay.Bucket, workers: int) -> None:
    contents = {"a": b"xy", "b": LARGE_CONTENT, "c": b"zw", "d": LARGE_CONTENT[::-1], "e": b""}
    bucket.put_many(contents.items())
    # Two buffers of one length would pass for two rows of numbers.
    for wanted in (["a", "c"], ["b", "d"], ["a", "b", "e"]):
        dataset = ParallelMapDataset(bucket)
        rows = ["abcde".index(name) for name in wanted]
        loader = DataLoader(dataset, batch_sampler=[rows], num_workers=workers)
        ((names, buffers),) = list(loader)
        assert list(names) == wanted
        assert [bytes(buffer) for buffer in buffers] == [contents[name] for name in wanted]


def test_an_object_changed_since_it_was_listed_is_an_error(filled: Any) -> None:
    dataset = ParallelMapDataset(filled)
    filled.object("large").put(LARGE_CONTENT + b"more")
    with pytest.raises(forebay.ObjectChanged, match="large"):
        dataset[1]
    answered = ParallelMapDataset(filled, on_error=lambda name, error: (name, None))
    filled.object("large").delete()
    assert answered[1] == ("large", None)


def test_what_makes_no_sense_is_refused(filled: Any) -> None:
    with pytest.raises(ValueError, match="num_workers"):
        ParallelMapDataset(filled, num_workers=0)
    with pytest.raises(TypeError, match="no snapshot"):
        ParallelMapDataset(filled, snapshot=True)
