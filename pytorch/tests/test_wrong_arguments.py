"""An argument that matches nothing, or stands in another one's place, is an error at construction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from shard_files import tar

import forebay
from forebay_torch import (
    BaseIterDataset,
    BaseMapDataset,
    BatchIterDataset,
    Config,
    DataShard,
    IterableDataset,
    MapDataset,
    MultiShardStream,
    ParallelMapDataset,
    ShardMapDataset,
    ShardReader,
)
from forebay_torch.compat import aistore, dataflux
from forebay_torch.datapipes import S3FileLister, S3FileLoader


class OwnMap(BaseMapDataset):
    def __getitem__(self, index: Any) -> Any:
        return self.get_obj_list()[index].name


class OwnIter(BaseIterDataset):
    def __iter__(self) -> Any:
        return (item.name for item in self.worker_objects())


KINDS: list[Callable[..., Any]] = [
    MapDataset,
    ParallelMapDataset,
    IterableDataset,
    BatchIterDataset,
    OwnMap,
    OwnIter,
    ShardReader,
    ShardMapDataset,
    aistore.AISMapDataset,
    aistore.AISParallelMapDataset,
    aistore.AISIterDataset,
    aistore.AISShardReader,
]


@pytest.fixture
def filled(bucket: forebay.Bucket) -> forebay.Bucket:
    bucket.put_many([("train/a", b"a"), ("train/b", b"b")])
    bucket.object("train/s.tar").put(tar([("1.txt", b"1")]))
    return bucket


@pytest.mark.parametrize("kind", KINDS)
def test_a_prefix_that_matches_nothing_is_named_with_its_bucket(
    filled: forebay.Bucket, kind: Any
) -> None:
    for prefixes in ("trian/", ["train/", "trian/"], ["", "trian/"]):
        with pytest.raises(ValueError) as caught:
            kind(filled, {filled: prefixes})
        assert filled.uri in str(caught.value) and "'trian/'" in str(caught.value)
        assert "allow_empty" in str(caught.value)
    with pytest.raises(ValueError, match=r"train/\*\.jpg"):
        kind(f"{filled.uri}/train/*.jpg")
    empty = kind(filled, {filled: "trian/"}, allow_empty=True)
    assert len(empty) == 0
    assert list(empty) == []
    assert len(kind(filled, {filled: ["train/", "trian/"]}, allow_empty=True)) > 0


def test_other_ways_to_name_a_prefix_are_checked_too(
    filled: forebay.Bucket, client: forebay.Client
) -> None:
    for kind in (MapDataset, IterableDataset):
        with pytest.raises(ValueError, match=f"{filled.uri}.*'trian/'"):
            kind(bucket_name=filled.uri, config=Config(prefix="trian/"), storage_client=client)
    with pytest.raises(ValueError, match=f"{filled.uri}.*'trian/'"):
        dataflux.DataFluxMapStyleDataset("p", filled.uri, Config(prefix="trian/"))
    with pytest.raises(ValueError, match=f"{filled.uri}.*'trian/'"):
        MultiShardStream([DataShard(filled, "trian/")])
    assert list(MultiShardStream([DataShard(filled, "trian/")], allow_empty=True)) == []
    with pytest.raises(ValueError, match="group of 2 names.*'val'"):
        MapDataset(group := filled.objects(names=["train/a", "train/b"]), {group: "val"})
    with pytest.raises(ValueError, match="group of 0 names"):
        MapDataset(filled.objects(names=[]))


def test_one_source_of_several_that_has_nothing_is_an_error(
    filled: forebay.Bucket, client: forebay.Client
) -> None:
    other = client.bucket(f"{filled.name}-empty").create()
    try:
        for kind in (MapDataset, IterableDataset, ShardReader):
            with pytest.raises(ValueError, match=other.uri):
                kind([filled, other])
    finally:
        other.delete()
    with pytest.raises(ValueError, match="named like an archive"):
        ShardReader(filled, {filled: "train/a"})
    with pytest.raises(ValueError, match="named like an archive"):
        ShardReader(filled, {filled: ["train/s", "train/a"]})


def test_a_refresh_that_finds_nothing_is_an_error(filled: forebay.Bucket) -> None:
    dataset, may_be = IterableDataset(filled), IterableDataset(filled, allow_empty=True)
    for name in list(filled.list_snapshot().names()):
        filled.object(name).delete()
    may_be.refresh()
    assert len(may_be) == 0
    with pytest.raises(ValueError, match=filled.uri):
        dataset.refresh()


@pytest.mark.parametrize("kind", KINDS)
def test_an_argument_in_the_place_of_another_is_an_error(
    filled: forebay.Bucket, client: forebay.Client, kind: Any
) -> None:
    assert len(kind(filled, {filled: "train/"})) > 0
    for arguments in (
        ({filled: "train/"}, filled),
        ({filled: "train/"},),
        (filled, "train/"),
        (filled, ["train/"]),
        (client, filled),
        (filled, {filled: 7}),
    ):
        with pytest.raises(TypeError):
            kind(*arguments)
    if kind is not BatchIterDataset:
        with pytest.raises(TypeError, match="prefix_map"):
            kind(filled, client)
        with pytest.raises(TypeError):
            kind(filled, None, client)


def test_arguments_behind_the_prefixes_are_distinguished_by_their_types(
    filled: forebay.Bucket, client: forebay.Client
) -> None:
    for kind, third in (
        (MapDataset, 16),
        (ParallelMapDataset, "an-etl"),
        (IterableDataset, "an-etl"),
        (ShardReader, True),
    ):
        with pytest.raises(TypeError, match="in another one's place"):
            kind(filled, None, third)  # type: ignore[operator]


def test_a_batch_dataset_takes_prefixes_and_client_in_either_order(
    filled: forebay.Bucket, client: forebay.Client
) -> None:
    prefixes = {filled: "train/a"}
    for arguments in ((filled, prefixes), (filled, prefixes, client), (filled, client, prefixes)):
        assert list(BatchIterDataset(*arguments)) == [("train/a", b"a")]
    with pytest.raises(ValueError, match="'trian/'"):
        BatchIterDataset(filled, client, {filled: "trian/"})
    assert len(aistore.AISBatchIterDataset(filled, client, prefixes)) == 1
    with pytest.raises(TypeError, match="second argument is the client"):
        aistore.AISBatchIterDataset(filled, prefixes)


def test_pipes_of_files_name_a_url_that_stands_for_nothing(filled: forebay.Bucket) -> None:
    url = f"{filled.uri}/trian/"
    for pipe in (S3FileLister, S3FileLoader):
        with pytest.raises(ValueError, match=f"{url}.*allow_empty"):
            list(pipe([f"{filled.uri}/train/", url]))
        assert len(list(pipe([f"{filled.uri}/train/", url], allow_empty=True))) == 3
