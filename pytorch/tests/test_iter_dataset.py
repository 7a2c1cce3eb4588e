"""Iterable datasets against a real cluster."""

from __future__ import annotations

import os
import pickle
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from itertools import islice
from typing import Any

import pytest
import torch
from forebay_cluster import wait_until
from forebay_fixture import Cluster
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import forebay
from forebay_torch import BaseIterDataset, Config, IterableDataset, IterDataset
from forebay_torch.prefetched_object import LookaheadObject
from forebay_torch.groups import fitting

CONTENTS = {f"o/{i:02}": os.urandom(50 + i) for i in range(25)}
PAIRS = sorted(CONTENTS.items())

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def loaded(dataset: Any, workers: int, **options: Any) -> DataLoader[Any]:
    """A loader that gives samples one by one, as they are."""
    return DataLoader(
        dataset, batch_size=None, num_workers=workers, collate_fn=lambda sample: sample, **options
    )


@pytest.fixture
def filled(bucket: forebay.Bucket) -> forebay.Bucket:
    bucket.put_many(CONTENTS.items())
    return bucket


def test_an_iterable_yields_names_and_contents_in_each_epoch(filled: forebay.Bucket) -> None:
    dataset = IterDataset(ais_source_list=filled)
    assert len(dataset) == 25
    for _ in range(2):
        assert list(dataset) == PAIRS


@pytest.mark.parametrize("workers", [0, 1, 4, 7])
def test_every_object_exactly_once_over_all_workers(
    filled: forebay.Bucket, workers: int
) -> None:
    dataset = IterableDataset(filled)
    loader = loaded(dataset, workers)
    for _ in range(2):
        assert sorted(loader) == PAIRS


def test_workers_beyond_the_number_of_objects_are_idle(filled: forebay.Bucket) -> None:
    dataset = IterableDataset(filled, prefix_map={filled: ["o/00", "o/01"]})
    assert sorted(loaded(dataset, 4)) == PAIRS[:2]


def test_a_persistent_worker_follows_set_epoch(filled: forebay.Bucket) -> None:
    dataset = IterableDataset(filled, shuffle=True, seed=5)
    loader = loaded(dataset, 2, persistent_workers=True)
    orders = []
    for epoch in (0, 1, 0):
        dataset.set_epoch(epoch)
        got = list(loader)
        assert sorted(got) == PAIRS
        orders.append([name for name, _ in got])
    assert orders[0] == orders[2] != orders[1]


@pytest.mark.parametrize("world,workers", [(1, 3), (3, 0), (4, 2)])
@pytest.mark.parametrize("shuffle", [False, True])
def test_ranks_and_workers_are_disjoint_and_together_everything(
    filled: forebay.Bucket, world: int, workers: int, shuffle: bool
) -> None:
    seen: Counter[str] = Counter()
    lengths = 0
    for rank in range(world):
        dataset = IterableDataset(filled, rank=rank, world_size=world, shuffle=shuffle)
        lengths += len(dataset)
        seen.update(name for name, _ in loaded(dataset, workers))
    assert seen == Counter(list(CONTENTS))
    assert lengths == 25


def distributed_rank(rank: int, dataset: Any, folder: str) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2
    )
    loader = DataLoader(dataset, batch_size=None, num_workers=1)
    names = "\n".join(name for name, _ in loader)
    with open(f"{folder}/{rank}", "w") as out:
        out.write(f"{len(dataset)}\n{names}")
    torch.distributed.destroy_process_group()


def test_the_process_group_is_asked_for_rank_and_world(
    filled: forebay.Bucket, tmp_path: Any
) -> None:
    dataset = IterableDataset(filled)
    torch.multiprocessing.spawn(distributed_rank, (dataset, str(tmp_path)), nprocs=2)
    parts = [(tmp_path / str(rank)).read_text().split("\n") for rank in range(2)]
    assert [part[0] for part in parts] == ["13", "12"]
    assert sorted(parts[0][1:] + parts[1][1:]) == sorted(CONTENTS)


def test_shard_by_rank_false_reads_everything_on_each_rank(filled: forebay.Bucket) -> None:
    dataset = IterableDataset(filled, shard_by_rank=False, rank=1, world_size=2)
    assert len(dataset) == 25
    assert list(dataset) == PAIRS


def test_workers_do_not_list(filled: forebay.Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = IterableDataset(filled)

    def refuse(*_: object) -> None:
        raise AssertionError("listed again")

    monkeypatch.setattr(forebay.Bucket, "list_snapshot", refuse)
    assert sorted(loaded(dataset, 3)) == PAIRS


def test_small_objects_are_fetched_in_batches(
    filled: forebay.Bucket, cluster: Cluster
) -> None:
    requests = cluster.count("forebay_http_requests_total", op="batch")
    entries = cluster.count("forebay_batch_entries_total")
    assert list(IterableDataset(filled)) == PAIRS
    assert cluster.count("forebay_batch_entries_total") - entries == 25
    assert cluster.count("forebay_http_requests_total", op="batch") - requests <= 3


def test_objects_one_by_one_without_composing(filled: forebay.Bucket, cluster: Cluster) -> None:
    entries = cluster.count("forebay_batch_entries_total")
    assert list(IterableDataset(filled, config=Config(disable_compose=True))) == PAIRS
    assert cluster.count("forebay_batch_entries_total") == entries


def test_the_dataflux_form(client: forebay.Client, filled: forebay.Bucket) -> None:
    dataset = IterableDataset(
        project_name="p",
        bucket_name=filled.name,
        config=Config(prefix="o/0"),
        data_format_fn=len,
        storage_client=client,
    )
    assert list(dataset) == [len(content) for _, content in PAIRS[:10]]


def test_new_objects_are_seen_after_refresh(filled: forebay.Bucket) -> None:
    dataset = IterableDataset(filled)
    filled.object("o/99").put(b"new")
    assert len(list(dataset)) == 25
    dataset.refresh()
    assert list(dataset) == [*PAIRS, ("o/99", b"new")]


def test_a_subclass_that_takes_objects_itself_has_its_place_too(filled: forebay.Bucket) -> None:
    class Upper(IterableDataset):
        def __iter__(self) -> Iterator[str]:
            self._reset_iterator()
            for obj in self._get_worker_iter_info()[0]:
                yield obj.name.upper()

    dataset = Upper(filled)
    samples = iter(dataset)
    before = [next(samples) for _ in range(9)]
    again = Upper(filled)
    again.load_state_dict(dataset.state_dict())
    assert before + list(again) == [name.upper() for name, _ in PAIRS]


def test_contradictions_are_refused(filled: forebay.Bucket) -> None:
    with pytest.raises(ValueError, match="IterableDataset needs at least one source"):
        IterableDataset([])
    with pytest.raises(TypeError, match="go together"):
        IterableDataset(filled, rank=1)
    with pytest.raises(ValueError, match="rank 2 is not one of 2"):
        IterableDataset(filled, rank=2, world_size=2)
    with pytest.raises(TypeError, match="wrong"):
        IterableDataset(filled, wrong=1)
    with pytest.raises(TypeError, match="abstract"):
        BaseIterDataset(filled)  # type: ignore[abstract]


class CIFAR10Dataset(BaseIterDataset):
    """The dataset of an article on AIStore and PyTorch, names apart."""

    def __init__(self, cifar_ais_source: Any, prefix_map: Any, transform: Any) -> None:
        super().__init__(ais_source_list=cifar_ais_source, prefix_map=prefix_map)
        self._transform = transform

    def __iter__(self) -> Iterator[Any]:
        from PIL import Image

        self._reset_iterator()
        worker_iter, _ = self._get_worker_iter_info()
        for obj in worker_iter:
            cifar_dict = pickle.load(BytesIO(obj.get().read_all()), encoding="bytes")
            data = cifar_dict[b"data"]
            reshaped_data = data.reshape(len(data), 3, 32, 32).transpose(0, 2, 3, 1)
            image_tensors = [
                self._transform(Image.fromarray(image.astype("uint8"), "RGB"))
                for image in reshaped_data
            ]
            yield from iter(zip(image_tensors, cifar_dict[b"labels"], strict=True))


def as_tensor(image: Any) -> torch.Tensor:
    return torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).reshape(32, 32, 3)


@pytest.mark.parametrize("workers", [0, 3])
def test_the_cifar_dataset_of_the_article_runs_unchanged(
    bucket: forebay.Bucket, workers: int
) -> None:
    numpy = pytest.importorskip("numpy")
    folder = "cifar-10-batches-py"
    numbers = numpy.random.default_rng(0)
    labels = {}
    for i in range(1, 6):
        labels[i] = [i * 100 + j for j in range(20)]
        data = numbers.integers(0, 256, (20, 3072), dtype=numpy.uint8)
        batch = pickle.dumps({b"data": data, b"labels": labels[i]})
        bucket.object(f"{folder}/data_batch_{i}").put(batch)
    bucket.object(f"{folder}/batches.meta").put(b"not a batch")
    bucket.object(f"{folder}/readme.html").put(b"<html>")
    dataset = CIFAR10Dataset(
        cifar_ais_source=bucket,
        prefix_map={bucket: [f"{folder}/data_batch_{i}" for i in range(1, 6)]},
        transform=as_tensor,
    )
    seen = []
    for images, batch_labels in DataLoader(dataset, batch_size=8, num_workers=workers):
        assert images.shape[1:] == (32, 32, 3)
        seen += batch_labels.tolist()
    assert sorted(seen) == sorted(label for part in labels.values() for label in part)


@pytest.fixture
def large(bucket: forebay.Bucket) -> dict[str, bytes]:
    contents = {f"large/{i}": os.urandom(3 << 20) for i in range(4)}
    bucket.put_many(contents.items())
    return contents


def test_who_reads_large_objects_whole_finds_the_next_there(
    bucket: forebay.Bucket, large: dict[str, bytes]
) -> None:
    objects = IterableDataset(bucket).worker_objects()
    assert next(objects).get().read_all() == large["large/0"]
    second = next(objects)
    assert isinstance(second, LookaheadObject) and second._coming is not None
    while not second._coming.is_done():
        time.sleep(0.01)
    bucket.object("large/1").delete()
    assert second.get().read_all() == large["large/1"]
    with pytest.raises(forebay.NotFound):
        second.get().read_all()  # nothing is kept


@pytest.mark.parametrize("size", [5 << 20, 1 << 20, 100, 0])
def test_an_object_that_has_another_size_than_was_listed_comes_ahead_as_it_is(
    bucket: forebay.Bucket, large: dict[str, bytes], size: int
) -> None:
    objects = IterableDataset(bucket).worker_objects()
    large["large/1"] = os.urandom(size)
    bucket.object("large/1").put(large["large/1"])
    assert next(objects).get().read_all() == large["large/0"]
    assert next(objects).get().read_all() == large["large/1"]
    assert next(objects).get().read_all() == large["large/2"]


def test_an_object_that_cannot_be_prefetched_fails_where_it_is_read(
    bucket: forebay.Bucket, large: dict[str, bytes]
) -> None:
    objects = IterableDataset(bucket).worker_objects()
    bucket.object("large/1").delete()
    assert next(objects).get().read_all() == large["large/0"]
    second = next(objects)
    with pytest.raises(forebay.NotFound, match="large/1"):
        second.get().read_all()
    assert next(objects).get().read_all() == large["large/2"]


def test_who_reads_large_objects_as_streams_or_in_part_gets_nothing_ahead(
    bucket: forebay.Bucket, large: dict[str, bytes]
) -> None:
    objects = IterableDataset(bucket).worker_objects()
    assert b"".join(next(objects).get()) == large["large/0"]
    second = next(objects)
    assert second.get(byte_range=(5, 10)).read_all() == large["large/1"][5:15]
    third = next(objects)
    assert isinstance(third, LookaheadObject) and third._coming is None
    assert pickle.loads(pickle.dumps(third)) == third


def test_a_worker_does_not_wait_for_what_the_process_before_it_began(
    bucket: forebay.Bucket, large: dict[str, bytes]
) -> None:
    class Lengths(BaseIterDataset):
        def __iter__(self) -> Iterator[int]:
            for each in self.worker_objects():
                yield len(each.get().read_all())

    dataset = Lengths(bucket)
    assert next(iter(dataset)) == 3 << 20
    loader = DataLoader(dataset, batch_size=None, num_workers=1, multiprocessing_context="fork")
    assert sum(loader) == 3 * (3 << 20)


def test_a_large_object_is_let_go_before_the_next_one_comes(
    bucket: forebay.Bucket, large: dict[str, bytes]
) -> None:
    class Watched(IterableDataset):
        handed_out: list[weakref.ref[memoryview]] = []

        def _get(self, row: int) -> list[Any]:
            assert [content() for content in self.handed_out] == [None] * len(self.handed_out)
            answers = super()._get(row)
            self.handed_out += map(weakref.ref, answers)
            return answers

    total = 0
    for sample in Watched(bucket, zero_copy=True):
        total += len(sample[1])
        del sample
    assert (len(Watched.handed_out), total) == (4, 4 * (3 << 20))


@pytest.mark.parametrize("zero_copy", [False, True])
def test_no_more_than_a_tenth_comes_beside_a_large_batch_that_is_whole(
    bucket: forebay.Bucket, cluster: Cluster, zero_copy: bool
) -> None:
    bucket.put_many((f"{number:02}", bytes(300 << 10)) for number in range(64))
    before = cluster.count("forebay_batch_entries_total")
    samples = iter(IterableDataset(bucket, batch_size=32, zero_copy=zero_copy))
    batch = list(islice(samples, 32))
    assert len(batch) == 32
    # Some of the next batch, which is on its way by now.
    wait_until(
        lambda: cluster.count("forebay_batch_entries_total") - before > 32, "more is asked for"
    )
    assert cluster.count("forebay_batch_entries_total") - before <= 32 + 32 // 10
    assert len(list(samples)) == 32


@given(st.lists(st.integers(0, 50), min_size=1), st.integers(0, 100))
def test_as_many_objects_as_fit_are_fetched_together_and_one_at_least(
    sizes: list[int], limit: int
) -> None:
    count = fitting(sizes, limit)
    assert count == 1 or sum(sizes[:count]) <= limit
    assert count == len(sizes) or sum(sizes[: count + 1]) > limit
