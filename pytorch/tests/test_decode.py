"""Decoder: parts of samples by their extensions."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
import torch

import forebay
from forebay_torch import Decoder, Fields, MapDataset, ShardMapDataset, ShardReader
from shard_files import tar

PNG_SIZE = (5, 3)


def image(ending: str = "png") -> bytes:
    """Red at the left, black elsewhere."""
    pillow = pytest.importorskip("PIL.Image")
    picture = pillow.new("RGB", PNG_SIZE)
    for row in range(PNG_SIZE[1]):
        picture.putpixel((0, row), (255, 0, 0))
    out = io.BytesIO()
    picture.save(out, ending)
    return out.getvalue()


def test_texts_numbers_and_documents() -> None:
    fields = Fields({"cls": b"7", "txt": "grün".encode(), "json": b'{"a": [1]}', "bin": b"\0"})
    decoded = Decoder()("k", fields)
    assert dict(decoded) == {"cls": 7, "txt": "grün", "json": {"a": [1]}, "bin": b"\0"}


def test_images_in_each_form() -> None:
    content = image()
    picture = Decoder("pil").part("jpg.png", content)
    assert picture.size == PNG_SIZE and picture.mode == "RGB"
    array = Decoder("numpy").part("PNG", content)
    assert array.shape == (3, 5, 3) and array[2, 0].tolist() == [255, 0, 0]
    tensor = Decoder("tensor").part("seg.png", content)
    assert tensor.shape == (3, 3, 5) and tensor.dtype == torch.uint8
    assert tensor[:, 1, 0].tolist() == [255, 0, 0] and int(tensor.sum()) == 3 * 255
    assert Decoder(None).part("png", content) == content


def test_arrays_and_tensors_but_no_pickled_code() -> None:
    numpy = pytest.importorskip("numpy")
    out = io.BytesIO()
    numpy.save(out, numpy.arange(6).reshape(2, 3))
    assert Decoder().part("npy", out.getvalue()).shape == (2, 3)
    out = io.BytesIO()
    torch.save({"w": torch.ones(2)}, out)
    assert Decoder().part("pth", out.getvalue())["w"].tolist() == [1, 1]
    out = io.BytesIO()
    numpy.save(out, numpy.array([object()]), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle"):
        Decoder().part("npy", out.getvalue())


def test_own_functions_go_first() -> None:
    decoder = Decoder(more={"cls": lambda content: -int(content), "seg.png": len})
    assert decoder.part("cls", b"5") == -5
    assert decoder.part("seg.png", b"1234") == 4


def test_the_part_that_fails_is_named() -> None:
    with pytest.raises(ValueError) as caught:
        Decoder()("k", Fields({"cls": b"seven"}))
    assert "while decoding 'cls'" in str(caught.value.__notes__)
    with pytest.raises(json.JSONDecodeError):
        Decoder().part("json", b"{")
    with pytest.raises(ValueError, match="images is"):
        Decoder("jpeg")  # type: ignore[arg-type]


def test_datasets_take_it(bucket: forebay.Bucket) -> None:
    members = [("1.png", image()), ("1.cls", b"1"), ("2.png", image()), ("2.cls", b"2")]
    bucket.object("s.tar").put(tar(members))
    bucket.object("alone.png").put(image())
    decoder = Decoder("tensor")
    datasets: list[Any] = [ShardReader(bucket, decode=decoder)]
    datasets.append(ShardMapDataset(bucket, decode=decoder))
    for dataset in datasets:
        found = dict(dataset)
        assert {key: parts["cls"] for key, parts in found.items()} == {"1": 1, "2": 2}
        assert all(parts["png"].shape == (3, 3, 5) for parts in found.values())
    images = MapDataset(
        bucket,
        prefix_map={bucket: "alone"},
        data_format_fn=lambda content: decoder.part("png", content),
    )
    assert images[0].shape == (3, 3, 5)
