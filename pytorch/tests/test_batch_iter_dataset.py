"""BatchIterDataset: requests of a chosen size, answers as they arrive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from forebay_cluster import Cluster
from torch.utils.data import DataLoader

import forebay
from forebay_torch import BatchIterDataset, Config, ThreadLoader

PAIRS = [(f"{i:02}", bytes([i]) * (i * 100)) for i in range(25)]

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture
def filled(bucket: forebay.Bucket) -> Iterator[forebay.Bucket]:
    bucket.put_many(PAIRS)
    yield bucket


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("workers", [0, 3])
def test_every_object_once_in_samples_of_name_and_content(
    filled: forebay.Bucket, workers: int, streaming: bool
) -> None:
    dataset = BatchIterDataset(filled, max_batch_size=7, streaming=streaming)
    loader = DataLoader(dataset, batch_size=None, num_workers=workers, collate_fn=tuple)
    assert len(dataset) == 25
    for _ in range(2):
        assert sorted(loader) == PAIRS
    assert dataset.stats().objects == 50


def test_a_request_has_at_most_max_batch_size_objects(
    filled: forebay.Bucket, client: forebay.Client, cluster: Cluster
) -> None:
    dataset = BatchIterDataset(filled, client, {filled: ""}, max_batch_size=10)
    entries = cluster.count("forebay_batch_entries_total")
    assert list(dataset) == PAIRS
    assert dataset.stats().requests == 3
    assert cluster.count("forebay_batch_entries_total") - entries == 25


def test_without_composing_objects_are_read_one_by_one(
    filled: forebay.Bucket, cluster: Cluster
) -> None:
    entries = cluster.count("forebay_batch_entries_total")
    assert list(BatchIterDataset(filled, config=Config(disable_compose=True))) == PAIRS
    assert cluster.count("forebay_batch_entries_total") == entries


@pytest.mark.parametrize("streaming", [True, False])
def test_a_missing_object_obeys_on_error_and_is_never_empty_in_silence(
    filled: forebay.Bucket, streaming: bool
) -> None:
    raising = BatchIterDataset(filled, streaming=streaming)
    skipping = BatchIterDataset(filled, streaming=streaming, on_error="skip")
    filled.object("03").delete()
    with pytest.raises(forebay.NotFound, match="/03"):
        list(raising)
    with pytest.warns(UserWarning, match="left out '03'"):
        assert list(skipping) == PAIRS[:3] + PAIRS[4:]
    assert skipping.stats().failed == 1


def test_it_goes_on_from_a_state_and_in_threads(filled: forebay.Bucket) -> None:
    dataset = BatchIterDataset(filled, max_batch_size=4, shuffle=True)
    samples: Any = iter(dataset)
    before = [next(samples) for _ in range(6)]
    after = BatchIterDataset(filled, max_batch_size=9, shuffle=True)
    after.load_state_dict(dataset.state_dict())
    rest = list(ThreadLoader(after, batch_size=None, threads=3, collate_fn=tuple))
    assert sorted(before + rest) == PAIRS


def test_a_batch_of_nothing_is_refused(filled: forebay.Bucket) -> None:
    with pytest.raises(ValueError, match="max_batch_size must be at least 1"):
        BatchIterDataset(filled, max_batch_size=0)
