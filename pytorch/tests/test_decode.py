"""Decoder: parts of samples by their extensions."""

from __future__ import annotations

import io
import json
import os
import pickle
from pathlib import Path
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


class MakesFolder:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_arrays_and_tensors_but_no_pickled_code(tmp_path: Path) -> None:
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
    flag = tmp_path / "ran"
    out = io.BytesIO()
    torch.save({"w": MakesFolder(flag)}, out)
    for name in ("pt", "pth"):
        with pytest.raises(pickle.UnpicklingError):
            Decoder().part(name, out.getvalue())
        assert not flag.exists()


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


def picture(image: Any, form: str = "PNG") -> bytes:
    out = io.BytesIO()
    image.save(out, form)
    return out.getvalue()


def shades(mode: str, *values: Any) -> Any:
    """An image of one row."""
    image = pytest.importorskip("PIL.Image").new(mode, (len(values), 1))
    image.putdata(values)
    return image


def images_of_each_mode() -> list[tuple[Any, str, str, list[Any]]]:
    """Image, file format, dtype of its array, and the row of the array."""
    numpy = pytest.importorskip("numpy")
    pillow = pytest.importorskip("PIL.Image")
    mask = shades("P", 0, 1, 2)
    mask.putpalette([0, 0, 0, 128, 0, 0, 0, 128, 0])
    deep = numpy.array([[5, 300, 40000]], dtype=numpy.uint16)
    return [
        (mask, "PNG", "uint8", [0, 1, 2]),
        (pillow.fromarray(deep), "PNG", "uint16", [5, 300, 40000]),
        (pillow.fromarray(deep), "TIFF", "uint16", [5, 300, 40000]),
        (shades("L", 7, 200), "PNG", "uint8", [7, 200]),
        (shades("LA", (7, 9), (200, 255)), "PNG", "uint8", [[7, 9], [200, 255]]),
        (shades("RGBA", (1, 2, 3, 4), (9, 8, 7, 0)), "PNG", "uint8", [[1, 2, 3, 4], [9, 8, 7, 0]]),
        (shades("RGB", (1, 2, 3), (9, 8, 7)), "PNG", "uint8", [[1, 2, 3], [9, 8, 7]]),
        (shades("1", 0, 255, 0), "PNG", "bool", [False, True, False]),
        (shades("CMYK", (1, 2, 3, 4)), "TIFF", "uint8", [[1, 2, 3, 4]]),
        (shades("I", -70000, 1 << 20), "TIFF", "int32", [-70000, 1 << 20]),
        (shades("F", 0.25, -3.5), "TIFF", "float32", [0.25, -3.5]),
    ]


def test_an_image_stays_what_it_is() -> None:
    for image, form, dtype, row in images_of_each_mode():
        content = picture(image, form)
        name = f"seg.{form.lower()}"
        assert Decoder().part(name, content).mode.split(";")[0] == image.mode.split(";")[0]
        array = Decoder("numpy").part(name, content)
        assert (str(array.dtype), array[0].tolist()) == (dtype, row), image.mode
        tensor = Decoder("tensor").part(name, content)
        flat = row if isinstance(row[0], list) else [[value] for value in row]
        assert tensor.permute(1, 2, 0)[0].tolist() == flat, image.mode
        assert tensor.shape[0] == len(image.getbands())
        assert torch.stack([tensor, tensor]).shape[0] == 2


def test_rgb_is_asked_for_and_refused_where_it_would_lose_bits() -> None:
    for image, form, _, _ in images_of_each_mode():
        content = picture(image, form)
        for images in ("pil-rgb", "numpy-rgb", "tensor-rgb"):
            decoder = Decoder(images)  # type: ignore[arg-type]
            if image.mode[0] in "IF":
                with pytest.raises(ValueError, match=f"mode {image.mode[0]}.*8 bits"):
                    decoder.part("png", content)
            else:
                expected = image.convert("RGB").tobytes()
                got = decoder.part("png", content)
                if images == "tensor-rgb":
                    got = got.permute(1, 2, 0).contiguous().numpy()
                assert got.tobytes() == expected, image.mode


def test_an_image_whose_bits_are_dropped_at_reading_is_refused() -> None:
    import struct
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + crc

    # A PNG of one pixel, three channels of 16 bits.
    row = b"\0" + struct.pack(">HHH", 300, 40000, 5)
    content = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0))
    content += chunk(b"IDAT", zlib.compress(row)) + chunk(b"IEND", b"")
    for images in ("pil", "numpy", "tensor"):
        with pytest.raises(ValueError, match="16 bits a channel"):
            Decoder(images).part("png", content)  # type: ignore[arg-type]
    assert Decoder("pil-rgb").part("png", content).getpixel((0, 0)) == (1, 156, 0)
