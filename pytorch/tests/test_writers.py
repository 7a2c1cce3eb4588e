"""Shards written from Python."""

from __future__ import annotations

import pytest
import torch

import forebay
from forebay_torch import Decoder, ShardReader, ShardWriter, TarWriter


def test_a_shard_writer_fills_shards_up_to_a_count_and_a_size(bucket: forebay.Bucket) -> None:
    with ShardWriter("train-%03d.tar", maxcount=4, maxsize=20_000, bucket=bucket) as writer:
        for i in range(10):
            writer.write({"__key__": f"{i:04}", "txt": f"text {i}", "cls": i, "json": {"i": [i]}})
        writer.write({"__key__": "large", "bin": bytes(30_000)})
    assert writer.shards == [f"{bucket.uri}/train-{n:03}.tar" for n in range(4)]
    samples = list(ShardReader(bucket, decode=Decoder()))
    assert [key for key, _ in samples] == [*(f"{i:04}" for i in range(10)), "large"]
    assert dict(samples[7][1]) == {"txt": "text 7", "cls": 7, "json": {"i": [7]}}


def test_a_writer_that_fails_leaves_no_half_shard(bucket: forebay.Bucket) -> None:
    with pytest.raises(RuntimeError), ShardWriter(f"{bucket.uri}/s-%d.tar", 2) as writer:
        for i in range(3):
            writer.write({"__key__": str(i), "txt": "x"})
        raise RuntimeError
    assert list(bucket.list_snapshot().names()) == ["s-0.tar"]


def test_a_tar_writer_writes_one(bucket: forebay.Bucket) -> None:
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


def test_keys_that_readers_would_cut_elsewhere_are_refused(bucket: forebay.Bucket) -> None:
    with TarWriter(f"{bucket.uri}/s.tar") as shard:
        for key in ("scan_1.5mm", "a/b.c", ".hidden", "a/", "/a", "a//b", "./a", "../a", "a\0b"):
            with pytest.raises(ValueError, match="reader takes|would not be read"):
                shard.write({"__key__": key, "jpg": b"1"})
        for extension in ("", "a/b", "a/"):
            with pytest.raises(ValueError, match="would not be read"):
                shard.write({"__key__": "a", extension: b"1"})
        with pytest.raises(ValueError, match="UTF-8"):
            shard.write({"__key__": "a\udce9", "jpg": b"1"})
        with pytest.raises(ValueError, match="no part"):
            shard.write({"__key__": "a", "__url__": "x"})
        kept = ("v1.2/scan", "a b", "für", "x" * 300)
        for key in kept:
            shard.write({"__key__": key, "seg.png": b"1"})
    assert [(key, dict(parts)) for key, parts in ShardReader(bucket)] == [
        (key, {"seg.png": b"1"}) for key in kept
    ]


def test_arrays_tensors_and_pictures_come_back_as_they_were(bucket: forebay.Bucket) -> None:
    numpy = pytest.importorskip("numpy")
    pillow = pytest.importorskip("PIL.Image")
    deep = numpy.array([[5, 300, 40000]], dtype=numpy.uint16)
    mask = pillow.new("P", (3, 1))
    mask.putpalette([0, 0, 0, 128, 0, 0, 0, 128, 0])
    mask.putdata([0, 1, 2])
    sample = {
        "__key__": "a",
        "cls": numpy.int64(7),
        "id": torch.tensor(8),
        "count": 3.0,
        "index": True,
        "score.txt": numpy.float32(0.5),
        "loss": torch.tensor(0.25, requires_grad=True),
        "json": {"box": numpy.arange(3), "t": torch.ones(2), "n": numpy.int8(4)},
        "npy": torch.arange(4).reshape(2, 2),
        "in.npy": numpy.eye(2),
        "npz": {"x": numpy.arange(2), "y": torch.zeros(1)},
        "pt": torch.arange(1000)[3:5],
        "state.pth": {"w": torch.ones(2)},
        "seg.png": mask,
        "depth.png": deep,
        "rgb.png": torch.arange(12, dtype=torch.uint8).reshape(3, 1, 4),
        "grey.png": numpy.array([[1, 2]], dtype=numpy.uint8),
        "jpg": pillow.new("RGB", (4, 4), (200, 10, 10)),
        "raw": numpy.array([1, 2], dtype=numpy.uint8).tobytes(),
    }
    with ShardWriter("t-%d.tar", bucket=bucket) as writer:
        writer.write(sample)
    ((key, raw),) = ShardReader(bucket)
    assert raw["score.txt"] == b"0.5" and raw["loss"] == b"0.25"
    assert len(raw["pt"]) < 3000
    ((key, got),) = ShardReader(bucket, decode=Decoder("numpy"))
    assert (got["cls"], got["id"], got["count"], got["index"]) == (7, 8, 3, 1)
    assert got["json"] == {"box": [0, 1, 2], "t": [1.0, 1.0], "n": 4}
    assert got["npy"].tolist() == [[0, 1], [2, 3]] and got["in.npy"].tolist() == [[1, 0], [0, 1]]
    assert got["npz"]["x"].tolist() == [0, 1]
    assert got["pt"].tolist() == [3, 4] and got["state.pth"]["w"].tolist() == [1, 1]
    assert got["seg.png"].tolist() == [[0, 1, 2]] and got["depth.png"].tolist() == deep.tolist()
    assert got["rgb.png"].tolist() == sample["rgb.png"].permute(1, 2, 0).tolist()
    assert got["grey.png"].tolist() == [[1, 2]] and got["jpg"].shape == (4, 4, 3)
    ((_, tensors),) = ShardReader(bucket, decode=Decoder("tensor"))
    assert tensors["rgb.png"].equal(sample["rgb.png"])


def test_a_value_that_its_extension_cannot_hold_is_refused_by_name(bucket: forebay.Bucket) -> None:
    numpy = pytest.importorskip("numpy")
    writer = ShardWriter("t-%d.tar", bucket=bucket)
    for extension, value in (
        ("cls", 1.5),
        ("cls", numpy.arange(2)),
        ("txt", {"a": 1}),
        ("txt", None),
        ("npy", numpy.array([object()])),
        ("json", object()),
        ("jpg", torch.zeros(3)),
        ("jpg", numpy.zeros((2, 2), dtype=numpy.complex64)),
        ("npz", numpy.arange(2)),
    ):
        with pytest.raises(TypeError, match=f"'{extension}' of the sample 'k'"):
            writer.write({"__key__": "k", extension: value})
    writer.write({"__key__": "k", "cls": 1})
    writer.close()
    assert [key for key, _ in ShardReader(bucket)] == ["k"]
