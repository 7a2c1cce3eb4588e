"""Samples of shards by number, and shards side by side, against a real cluster."""

from __future__ import annotations

import os
import pickle
from typing import Any

import pytest
import torch
from forebay_fixture import Cluster
from shard_files import FORMATS, pack, tar
from torch.utils.data import DataLoader

import forebay
from forebay_torch import (
    Config,
    DataShard,
    DynamicBatchSampler,
    MultiShardStream,
    ShardMapDataset,
    ShardReader,
)

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

SAMPLES = {
    f"s{shard}": {
        f"d/{shard}-{i:02}": {"jpg": os.urandom(100 + i), "cls": str(i).encode()}
        for i in range(20)
    }
    for shard in range(5)
}
ALL = [(key, parts) for samples in SAMPLES.values() for key, parts in samples.items()]


def members(samples: dict[str, dict[str, bytes]]) -> list[tuple[str, bytes]]:
    return [(f"{key}.{ext}", data) for key, parts in samples.items() for ext, data in parts.items()]


@pytest.fixture
def filled(bucket: forebay.Bucket) -> forebay.Bucket:
    bucket.put_many((f"{name}.tar", tar(members(samples))) for name, samples in SAMPLES.items())
    return bucket


def test_any_sample_of_many_shards_by_its_number(filled: forebay.Bucket) -> None:
    dataset = ShardMapDataset(filled)
    assert len(dataset) == len(ALL)
    assert [dataset[i] for i in range(len(dataset))] == ALL == [s for s in ShardReader(filled)]
    assert dataset[-1] == ALL[-1]
    assert dataset[torch.tensor(3)] == ALL[3]
    assert dataset[3][1]["__url__"] == f"{filled.uri}/s0.tar"
    for bad in (len(ALL), -len(ALL) - 1):
        with pytest.raises(IndexError, match="in bounds"):
            dataset[bad]
    assert list(dataset.objects)[:1] == [("d/0-00", 101)]
    assert [name for name, _ in dataset.shards] == [f"s{i}.tar" for i in range(5)]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_shuffles_over_all_shards(filled: forebay.Bucket, workers: int) -> None:
    dataset = ShardMapDataset(filled, decode={"cls": int})
    loader = DataLoader(dataset, batch_size=16, shuffle=True, num_workers=workers)
    got, mixed = {}, 0
    for keys, contents in loader:
        mixed += len({key[2] for key in keys}) > 1
        for i, key in enumerate(keys):
            got[key] = (contents["jpg"][i], int(contents["cls"][i]))
    assert got == {key: (parts["jpg"], int(parts["cls"])) for key, parts in ALL}
    assert mixed


def test_it_pickles_and_spawns(filled: forebay.Bucket) -> None:
    dataset = ShardMapDataset(filled)
    assert pickle.loads(pickle.dumps(dataset))[5] == ALL[5]
    loader = DataLoader(dataset, batch_size=30, num_workers=2, multiprocessing_context="spawn")
    assert [key for keys, _ in loader for key in keys] == [key for key, _ in ALL]
    # Two names, two sizes and three offsets for a sample; nothing of its content.
    many = len(pickle.dumps(dataset)) - len(pickle.dumps(ShardMapDataset(filled, {filled: "s0"})))
    assert many / 80 < 100


def test_a_batch_reads_only_its_members_by_one_request_per_target(
    filled: forebay.Bucket, cluster: Cluster
) -> None:
    dataset = ShardMapDataset(filled)
    requests = cluster.count("forebay_http_requests_total", op="batch")
    entries = cluster.count("forebay_batch_entries_total")
    gets = cluster.count("forebay_http_requests_total", op="get")
    rows = [99, 0, 41, 7, 63]
    assert dataset.__getitems__(rows) == [ALL[row] for row in rows]
    assert cluster.count("forebay_http_requests_total", op="batch") - requests <= 3
    assert cluster.count("forebay_batch_entries_total") - entries == 2 * len(rows)
    assert cluster.count("forebay_http_requests_total", op="get") == gets
    assert dataset.__getitems__([]) == []
    small = ShardMapDataset(filled, config=Config(max_composite_object_size=300))
    assert small.__getitems__(rows) == [ALL[row] for row in rows]


@pytest.mark.parametrize("ending", FORMATS)
def test_all_formats(bucket: forebay.Bucket, ending: str) -> None:
    bucket.object(f"a{ending}").put(pack(members(SAMPLES["s0"]), ending))
    dataset = ShardMapDataset(bucket)
    rows = [19, 3, 7, 3]
    assert dataset.__getitems__(rows) == [ALL[row] for row in rows]


def test_members_of_a_sample_may_lie_apart(bucket: forebay.Bucket) -> None:
    names = ["1.a", "2.a", "x/1.a", "1.seg.a", "1.b", "._1.c"]
    bucket.object("a.tar").put(tar([(name, name.encode()) for name in names]))
    dataset = ShardMapDataset(bucket)
    assert dict(dataset[0][1]) == {"a": b"1.a", "seg.a": b"1.seg.a", "b": b"1.b"}
    assert [dataset[i][0] for i in range(len(dataset))] == ["1", "2", "x/1"]


def test_what_cannot_be_indexed_is_raised_or_left_out(bucket: forebay.Bucket) -> None:
    bucket.object("a.tar").put(tar([("1.a", b"")])[:700])
    bucket.object("b.tar").put(tar([("1.a", b"x"), ("2.a", b""), ("2.a", b""), ("3.a", b"z")]))
    with pytest.raises(forebay.ForebayError, match="a.tar"):
        ShardMapDataset(bucket)
    with pytest.raises(forebay.InvalidArgument, match='b.tar: sample "2"'):
        ShardMapDataset(bucket, {bucket: "b"})
    with pytest.warns(UserWarning, match="left out"):
        dataset = ShardMapDataset(bucket, on_error="skip")
    assert [dataset[i] for i in range(len(dataset))] == [("1", {"a": b"x"}), ("3", {"a": b"z"})]
    with pytest.raises(ValueError, match="on_error"):
        ShardMapDataset(bucket, on_error=print)  # type: ignore[arg-type]


def test_a_shard_that_changed_is_not_mistaken(bucket: forebay.Bucket) -> None:
    bucket.object("a.tar").put(tar([("1.a", b"abc"), ("2.a", b"abc")]))
    dataset = ShardMapDataset(bucket)
    bucket.object("a.tar").put(tar([("1.a", b"abcd"), ("2.a", b"abc")]))
    with pytest.raises(forebay.ObjectChanged, match="a.tar: '1.a' has 4 bytes"):
        dataset[0]


def test_batches_by_size(filled: forebay.Bucket) -> None:
    dataset = ShardMapDataset(filled)
    sampler = DynamicBatchSampler(dataset, max_batch_size=1000)
    loader = DataLoader(dataset, batch_sampler=sampler)
    keys = [key for keys, _ in loader for key in keys]
    assert keys == [key for key, _ in ALL]
    assert len(loader) > 10


@pytest.mark.parametrize("workers", [0, 3])
def test_streams_are_zipped_member_by_member_and_strict_refuses_unequal_ones(
    filled: forebay.Bucket, workers: int
) -> None:
    texts = [(f"{i}.txt", str(i).encode()) for i in range(50)]
    filled.object("t0.tar").put(tar(texts[:9]))
    filled.object("t1.tar").put(tar(texts[9:]))
    images = [data for key, parts in ALL for data in parts.values()]
    sources = [DataShard(filled, "s"), DataShard(filled, "t")]
    dataset = MultiShardStream(sources)
    assert len(dataset) == 50
    loader: Any = DataLoader(dataset, batch_size=None, num_workers=workers)
    got = sorted([tuple(pair) for pair in loader], key=lambda pair: int(pair[1]))
    assert got == list(zip(images[:50], [data for _, data in texts], strict=True))
    with pytest.raises(ValueError, match=r"\[200, 50\]"):
        MultiShardStream(sources, strict=True)
    with pytest.raises(forebay.NotFound, match="no-such-etl"):
        MultiShardStream([DataShard(filled, "s", "no-such-etl")])
    with pytest.raises(ValueError, match="at least one"):
        MultiShardStream([])
