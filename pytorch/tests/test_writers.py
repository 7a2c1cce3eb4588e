"""Shards written from Python."""

from __future__ import annotations

import pytest

import forebay
from forebay_torch import Decoder, ShardReader, ShardWriter, TarWriter


def test_W3_a_shard_writer_fills_shards_up_to_a_count_and_a_size(bucket: forebay.Bucket) -> None:
    with ShardWriter("train-%03d.tar", maxcount=4, maxsize=20_000, bucket=bucket) as writer:
        for i in range(10):
            writer.write({"__key__": f"{i:04}", "txt": f"text {i}", "cls": i, "json": {"i": [i]}})
        writer.write({"__key__": "large", "bin": bytes(30_000)})
    assert writer.shards == [f"{bucket.uri}/train-{n:03}.tar" for n in range(4)]
    samples = list(ShardReader(bucket, decode=Decoder()))
    assert [key for key, _ in samples] == [*(f"{i:04}" for i in range(10)), "large"]
    assert dict(samples[7][1]) == {"txt": "text 7", "cls": 7, "json": {"i": [7]}}


def test_W3_a_writer_that_fails_leaves_no_half_shard(bucket: forebay.Bucket) -> None:
    with pytest.raises(RuntimeError), ShardWriter(f"{bucket.uri}/s-%d.tar", 2) as writer:
        for i in range(3):
            writer.write({"__key__": str(i), "txt": "x"})
        raise RuntimeError
    assert list(bucket.list_snapshot().names()) == ["s-0.tar"]


def test_W3_a_tar_writer_writes_one(bucket: forebay.Bucket) -> None:
    with TarWriter(f"{bucket.uri}/one.tar") as shard:
        assert shard.write({"__key__": "a/b", "seg.png": b"png"}) == 3
        with pytest.raises(ValueError, match="came before"):
            shard.write({"__key__": "a/b", "png": b""})
        with pytest.raises(ValueError, match="__key__"):
            shard.write({"png": b""})
        with pytest.raises(TypeError, match="'png' of the sample 'c'"):
            shard.write({"__key__": "c", "png": [1]})
    ((key, parts),) = ShardReader(bucket)
    assert (key, dict(parts)) == ("a/b", {"seg.png": b"png"})
    with pytest.raises(ValueError, match="closed"):
        shard.write({"__key__": "d"})


def test_patterns_and_limits_that_make_no_sense_are_refused(bucket: forebay.Bucket) -> None:
    with pytest.raises(ValueError, match="one place for the number"):
        ShardWriter("a.tar", bucket=bucket)
    with pytest.raises(ValueError, match="maxcount=0"):
        ShardWriter("a-%d.tar", 0, bucket=bucket)
    with pytest.raises(ValueError, match="not an object"):
        TarWriter(bucket.uri)
