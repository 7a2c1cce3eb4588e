"""Datasets as nodes of torchdata."""

from __future__ import annotations

from typing import Any

import pytest

import forebay
from forebay_torch import IterableDataset, MapDataset

pytest.importorskip("torchdata")

import torchdata.nodes  # noqa: E402

from forebay_torch.nodes import Reader  # noqa: E402


@pytest.fixture
def filled(bucket: forebay.Bucket) -> forebay.Bucket:
    bucket.put_many((f"{i:02}", b"x") for i in range(20))
    return bucket


def loader(bucket: forebay.Bucket) -> Any:
    node = torchdata.nodes.Batcher(Reader(IterableDataset(bucket, shuffle=True, seed=2)), 4, False)
    return torchdata.nodes.Loader(node)


def names(batches: Any) -> list[str]:
    return [name for batch in batches for name, _ in batch]


def test_a_node_reader_goes_on_from_get_state_in_the_same_order(filled: Any) -> None:
    whole = names(loader(filled))
    assert sorted(whole) == [f"{i:02}" for i in range(20)]
    first = loader(filled)
    batches = iter(first)
    head = names([next(batches) for _ in range(2)])
    second = loader(filled)
    second.load_state_dict(first.state_dict())
    assert head + names(second) == whole


def test_each_pass_of_a_node_is_the_next_epoch(filled: Any) -> None:
    made = loader(filled)
    epochs = [names(made) for _ in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) and epochs[0] != epochs[1]


def test_what_has_no_state_is_no_node(filled: Any) -> None:
    with pytest.raises(TypeError, match="MapDataset"):
        Reader(MapDataset(filled))
