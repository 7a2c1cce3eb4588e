"""Datasets apply their policy to objects that cannot be had, and count them."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from torch.utils.data import DataLoader

import forebay
from forebay_torch import IterableDataset, MapDataset
from forebay_torch.policy import Counters, Policy

NAMES = [f"{i}" for i in range(8)]


@pytest.fixture
def holed(bucket: forebay.Bucket) -> forebay.Bucket:
    bucket.put_many((name, name.encode()) for name in NAMES)
    return bucket


def without(bucket: forebay.Bucket, *gone: str) -> None:
    """Takes objects away, after a dataset has listed them."""
    for name in gone:
        bucket.object(name).delete()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_map_dataset_replaces_what_is_gone_and_batches_keep_their_length(
    holed: forebay.Bucket, workers: int
) -> None:
    dataset = MapDataset(holed, on_error="replace")
    without(holed, "2", "3", "7")
    loader = DataLoader(dataset, batch_size=4, num_workers=workers)
    found = [list(names) for names, _ in loader]
    assert found == [["0", "1", "4", "4"], ["4", "5", "6", "0"]]
    assert dataset[-1] == ("0", b"0")
    assert dataset.stats().failed == 4


def test_nothing_that_can_be_had_is_an_error_not_an_endless_search(holed: forebay.Bucket) -> None:
    dataset = MapDataset(holed, on_error="replace")
    without(holed, *NAMES)
    with pytest.raises(forebay.NotFound, match="/5"):
        dataset[5]


def test_a_function_says_what_takes_the_place(holed: forebay.Bucket) -> None:
    seen = []

    def instead(name: str, error: Exception) -> tuple[str, bytes]:
        seen.append((name, type(error)))
        return name, b"gone"

    datasets: list[Any] = [MapDataset(holed, on_error=instead)]
    datasets.append(IterableDataset(holed, on_error=instead))
    without(holed, "1")
    for dataset in datasets:
        assert list(dataset)[:3] == [("0", b"0"), ("1", b"gone"), ("2", b"2")]
    assert seen == [("1", forebay.NotFound)] * 2


@pytest.mark.parametrize("workers", [0, 2])
def test_an_iterable_skips_with_a_warning_and_stats_count(
    holed: forebay.Bucket, workers: int, recwarn: pytest.WarningsRecorder
) -> None:
    dataset = IterableDataset(holed, on_error="skip", return_name=False)
    without(holed, "1", "6")
    loader = DataLoader(dataset, batch_size=None, num_workers=workers)
    assert sorted(loader) == [b"0", b"2", b"3", b"4", b"5", b"7"]
    stats = dataset.stats()
    assert (stats.failed, stats.objects, stats.bytes) == (2, 6, 6)
    assert stats.requests >= 1 and stats.fetch_s > 0
    if workers == 0:
        assert "left out '1'" in str(recwarn.list[0].message)


def test_what_fails_to_decode_obeys_the_same_policy(holed: forebay.Bucket) -> None:
    def decode(content: bytes) -> int:
        if content == b"3":
            raise ZeroDivisionError("no threes")
        return int(content)

    skipping = IterableDataset(holed, data_format_fn=decode, on_error="skip")
    with pytest.warns(UserWarning, match="left out '3': no threes"):
        assert list(skipping) == [0, 1, 2, 4, 5, 6, 7]
    replacing = MapDataset(holed, data_format_fn=decode, on_error="replace")
    assert replacing.__getitems__([2, 3, 4]) == [2, 4, 4]
    with pytest.raises(ZeroDivisionError):
        list(IterableDataset(holed, data_format_fn=decode))


def test_by_default_a_missing_object_raises_and_is_named(holed: forebay.Bucket) -> None:
    datasets: list[Any] = [MapDataset(holed), IterableDataset(holed)]
    without(holed, "4")
    for dataset in datasets:
        with pytest.raises(forebay.NotFound, match="/4"):
            list(dataset)


def test_a_cluster_that_is_away_is_never_skipped() -> None:
    for error in (
        forebay.ClusterUnavailable("down"),
        forebay.AccessDenied("no"),
        forebay.CorruptAnswer("not a batch stream"),
    ):
        for word in ("skip", "replace"):
            policy = Policy("D", word, ("skip", "replace"), Counters())  # type: ignore[arg-type]
            with pytest.raises(type(error)):
                policy.instead("x", error, lambda: "another")


def test_policies_that_a_dataset_does_not_have_are_refused(holed: forebay.Bucket) -> None:
    with pytest.raises(ValueError, match="would make batches shorter"):
        MapDataset(holed, on_error="skip")
    with pytest.raises(ValueError, match='"raise", "skip", "retry:N" or a function'):
        IterableDataset(holed, on_error="replace")


def test_stats_are_formatted_for_prometheus(holed: forebay.Bucket) -> None:
    dataset = IterableDataset(holed, on_error=lambda name, error: None)
    without(holed, "3")
    assert len(list(dataset)) == 8
    text = dataset.stats().prometheus(dataset='a"b')
    assert "# TYPE forebay_dataset_objects_total counter\n" in text
    assert 'forebay_dataset_failed_samples_total{dataset="a\\"b"} 1\n' in text
    assert "forebay_dataset_objects_total 7\n" in dataset.stats().prometheus()


def test_retry_makes_a_sample_anew_and_raises_when_that_does_not_help(
    bucket: forebay.Bucket,
) -> None:
    bucket.put_many((f"{i}", b"x") for i in range(3))
    failures = [2]

    def flaky(content: bytes) -> bytes:
        if failures[0]:
            failures[0] -= 1
            raise OSError("for now")
        return content

    for kind in (MapDataset, IterableDataset):
        failures[0] = 2
        assert list(kind(bucket, data_format_fn=flaky, on_error="retry:2")) == [b"x"] * 3
        failures[0] = 9
        with pytest.raises(OSError, match="for now") as caught:
            list(kind(bucket, data_format_fn=flaky, on_error="retry:2"))
        assert "after 2 tries more" in str(caught.value.__notes__)
    with pytest.raises(ValueError, match="needs N"):
        MapDataset(bucket, on_error="retry:often")


def test_threads_that_count_together_lose_no_number() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            for _ in range(200):
                counters, begin = Counters(), threading.Barrier(4)

                def count(
                    _: int, counters: Counters = counters, begin: threading.Barrier = begin
                ) -> None:
                    begin.wait(10)
                    for _ in range(20):
                        counters.add(objects=2, requests=1)

                list(pool.map(count, range(4)))
                total = counters.total()
                assert (total.requests, total.objects) == (80, 160)
    finally:
        sys.setswitchinterval(interval)
