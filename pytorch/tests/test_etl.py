"""Datasets that read through transforms of the cluster."""

from __future__ import annotations

import io
import json
import tarfile
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from forebay_cluster import Cluster
from torch.utils.data import DataLoader

import forebay
from forebay_torch import (
    BatchIterDataset,
    DataShard,
    IterableDataset,
    MapDataset,
    MultiShardStream,
    ShardReader,
)
from forebay_torch.compat.aistore import AISIterDataset, AISMapDataset, AISShardReader

COMMANDS = json.dumps(
    [
        {"name": "upper", "argv": ["tr", "a-z", "A-Z"]},
        {"name": "strict", "argv": ["sh", "-c", "! grep -q bad && echo fine"]},
        {"name": "gunzip", "argv": ["gunzip", "-c"]},
        {"name": "edit", "argv": ["sed", "s/text/TEXT/g"]},
    ]
)


COMMAND_OF = {"shout": "upper", "strict": "strict", "unpack": "gunzip", "loud": "edit"}


@pytest.fixture(scope="module")
def transforming(tmp_path_factory: pytest.TempPathFactory) -> Iterator[forebay.Client]:
    """A client of a cluster with the transforms of ``COMMAND_OF``, each named ``…-etl``."""
    table = COMMANDS.replace('"name": ', "name=").replace('"argv": ', "argv=")
    env = {"FOREBAY_ETL__COMMAND": table}
    running = Cluster.start(tmp_path_factory.mktemp("etl"), targets=2, env=env)
    try:
        for name, command in COMMAND_OF.items():
            body = json.dumps({"name": f"{name}-etl", "command": command}).encode()
            request = urllib.request.Request(f"{running.endpoint}/v1/etl", body, method="PUT")
            urllib.request.urlopen(request, timeout=20).close()
        yield forebay.Client(running.endpoint, timeout=20)
    finally:
        running.stop()


@pytest.fixture
def texts(transforming: forebay.Client) -> forebay.Bucket:
    own = transforming.bucket(f"t-{uuid.uuid4().hex[:12]}").create()
    own.put_many((f"{i:02}", f"words {i}".encode()) for i in range(10))
    return own


def shard(samples: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for i in range(samples):
            for extension, content in (("txt", b"text %d" % i), ("cls", b"%d" % i)):
                info = tarfile.TarInfo(f"s{i}.{extension}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


Make = Callable[[forebay.Bucket], Any]


@pytest.mark.parametrize(
    "make",
    [
        lambda b: MapDataset(b, etl_name="shout-etl"),
        lambda b: IterableDataset(b, etl_name="shout-etl"),
        lambda b: BatchIterDataset(b, etl_name="shout-etl", max_batch_size=4),
        lambda b: AISMapDataset(b, etl_name="shout-etl"),
        lambda b: AISIterDataset(b, etl_name="shout-etl"),
    ],
)
@pytest.mark.parametrize("workers", [0, 2])
def test_etl_name_hands_out_what_the_transform_makes(
    texts: forebay.Bucket, make: Make, workers: int
) -> None:
    loader = DataLoader(make(texts), batch_size=4, num_workers=workers)
    seen = dict(pair for names, contents in loader for pair in zip(names, contents, strict=True))
    assert seen == {f"{i:02}": f"WORDS {i}".encode() for i in range(10)}


def test_an_unknown_etl_is_an_error_at_construction_that_names_it(
    texts: forebay.Bucket,
) -> None:
    texts.object("a.tar").put(shard(1))
    for kind in (MapDataset, IterableDataset, ShardReader, AISShardReader):
        with pytest.raises(forebay.NotFound, match="nobody-here"):
            kind(texts, etl_name="nobody-here")


def test_a_failing_transform_of_one_object_obeys_on_error(texts: forebay.Bucket) -> None:
    texts.object("05").put(b"bad")
    with pytest.raises(forebay.ForebayError, match="05"):
        list(MapDataset(texts, etl_name="strict-etl"))
    replaced = MapDataset(texts, etl_name="strict-etl", on_error=lambda name, error: name)
    assert [sample for sample in replaced if isinstance(sample, str)] == ["05"]
    skipping = IterableDataset(texts, etl_name="strict-etl", on_error="skip")
    with pytest.warns(UserWarning, match="left out '05'"):
        assert len(list(skipping)) == 9
    assert skipping.stats().failed == 1


def test_shards_are_transformed_as_a_whole(transforming: forebay.Client) -> None:
    import gzip

    own = transforming.bucket(f"t-{uuid.uuid4().hex[:12]}").create()
    for name in ("a.tar", "b.tar"):
        own.object(name).put(gzip.compress(shard(3)))
    keys = [key for key, _ in ShardReader(own, etl_name="unpack-etl")]
    assert keys == ["s0", "s1", "s2"] * 2
    with pytest.raises(forebay.InvalidArgument, match="no archive"):
        list(ShardReader(own, etl_name="strict-etl"))


def test_a_stream_may_be_transformed(transforming: forebay.Client) -> None:
    own = transforming.bucket(f"t-{uuid.uuid4().hex[:12]}").create()
    own.object("plain.tar").put(shard(2))
    own.object("loud.tar").put(shard(2))
    streams = [DataShard(own, "plain"), DataShard(own, "loud", "loud-etl")]
    assert list(MultiShardStream(streams)) == [
        (b"text 0", b"TEXT 0"),
        (b"0", b"0"),
        (b"text 1", b"TEXT 1"),
        (b"1", b"1"),
    ]
    with pytest.raises(forebay.InvalidArgument, match="no archive"):
        list(MultiShardStream([DataShard(own, "plain", "strict-etl")]))


def test_a_pinned_transform_is_refused(texts: forebay.Bucket) -> None:
    with pytest.raises(ValueError, match="has no version"):
        MapDataset(texts, etl_name="shout-etl", snapshot=True)
    with pytest.raises(ValueError, match="only the whole"):
        MapDataset(texts, etl_name="shout-etl").get_obj_list()[0].get(byte_range=(0, 1))
