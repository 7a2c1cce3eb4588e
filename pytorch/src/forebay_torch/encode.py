"""The parts of samples as bytes, by the endings of their names: the counterpart of ``decode``."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import torch

from forebay import split_member
from forebay_torch.decode import IMAGE_ENDINGS, NUMBER_ENDINGS

__all__ = ["encoded_parts"]

_JSON = ("json", "jsn")
_TORCH = ("pt", "pth")
# Ending -> format of Pillow and its options.
_FORMATS: dict[str, tuple[str, dict[str, Any]]] = {
    "jpg": ("JPEG", {"quality": 100}),
    "jpeg": ("JPEG", {"quality": 100}),
    "png": ("PNG", {}),
    "webp": ("WEBP", {"lossless": True}),
    "bmp": ("BMP", {}),
    "gif": ("GIF", {}),
    "ppm": ("PPM", {}),
    "pgm": ("PPM", {}),
    "tif": ("TIFF", {}),
    "tiff": ("TIFF", {}),
}


def encoded_parts(sample: Mapping[str, Any]) -> tuple[str, dict[str, bytes]]:
    """The key of a sample, and its parts by extension as the bytes that a shard has.

    Raises:
        ValueError: There is no ``__key__`` or no part; or a reader would cut the name of a part at
            another place, so that it became a part of another sample.
        TypeError: A part has a type that its extension cannot hold.
    """
    key = sample.get("__key__")
    if not isinstance(key, str) or not key:
        raise ValueError('a sample needs its "__key__", a text')
    extensions = [name for name in sample if not name.startswith("__")]
    if not extensions:
        raise ValueError(f"the sample {key!r} has no part, so no reader would find it")
    for extension in extensions:
        _check_name(key, extension)
    return key, {extension: _encoded(key, extension, sample[extension]) for extension in extensions}


def _check_name(key: str, extension: str) -> None:
    """Refuses a name that readers cut elsewhere than behind the key."""
    name = f"{key}.{extension}"
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the name {name!r} of a part cannot be written as UTF-8") from None
    cut = None if "\0" in name else split_member(name)
    folders = name.split("/")
    if cut == (key, extension) and not {"", ".", ".."} & set(folders):
        return
    if "." in folders[-1].removesuffix(f".{extension}") and "/" not in extension:
        raise ValueError(
            f"the key {key!r} has a dot behind its last slash: a reader takes what follows the dot "
            f"for a part of the extension; use another sign, such as {key.replace('.', '_')!r}"
        )
    raise ValueError(f"a shard cannot have a part {extension!r} of the sample {key!r}: its name "
                     f"{name!r} would not be read as that")


def _encoded(key: str, extension: str, value: Any) -> bytes:
    """One part as bytes."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    ending = extension.rpartition(".")[2].lower()
    try:
        if ending in _TORCH:
            return _saved(value)
        if ending in ("npy", "npz"):
            return _numpy(value, ending)
        if ending in _JSON:
            return json.dumps(value, default=_as_plain).encode()
        if ending in IMAGE_ENDINGS:
            return _image(value, ending)
        return _number(_as_plain(value), ending)
    except (TypeError, ValueError, OSError) as error:
        kind = type(value).__name__
        raise TypeError(
            f"{extension!r} of the sample {key!r} is a {kind}, which cannot be written as that "
            f"({error}): give bytes, text, a number; an array or tensor for npy, pt, json or an "
            "image; an image of Pillow for an image"
        ) from error


def _number(value: Any, ending: str) -> bytes:
    if not isinstance(value, int | float):
        raise TypeError("it is no number")
    if ending in NUMBER_ENDINGS:
        if int(value) != value:
            raise ValueError(f"{ending} holds whole numbers, not {value}")
        return str(int(value)).encode()
    return str(value).encode()


def _as_plain(value: Any) -> Any:
    """A scalar, array or tensor as numbers and lists of Python."""
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
    elif not hasattr(value, "__array__") or not hasattr(value, "tolist"):
        raise TypeError(f"{type(value).__name__} has no form as text")
    return value.tolist()


def _saved(value: Any) -> bytes:
    out = io.BytesIO()
    if isinstance(value, torch.Tensor):
        # Of a view, all that it is a view of would be saved.
        value = value.detach().cpu().clone()
    torch.save(value, out)
    return out.getvalue()


def _numpy(value: Any, ending: str) -> bytes:
    import numpy

    out = io.BytesIO()
    if ending == "npz":
        if not isinstance(value, Mapping):
            raise TypeError("npz holds a dict of arrays")
        numpy.savez(out, **{name: _array(array) for name, array in value.items()})
    else:
        numpy.save(out, _array(value), allow_pickle=False)
    return out.getvalue()


def _array(value: Any) -> Any:
    import numpy

    if isinstance(value, torch.Tensor):
        return value.detach().cpu().numpy()
    array = numpy.asarray(value)
    if array.dtype.hasobject:
        raise TypeError("an array of objects")
    return array


def _image(value: Any, ending: str) -> bytes:
    """A picture in the format of this ending: of Pillow, or an array of (height, width[, channels]),
    or a tensor of ([channels,] height, width), as ``Decoder`` gives them."""
    from PIL import Image

    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        if value.dim() == 3:
            value = value.permute(1, 2, 0)
        value = value.numpy()
    if not isinstance(value, Image.Image):
        if not hasattr(value, "__array__") or getattr(value, "ndim", 0) not in (2, 3):
            raise TypeError("it is no image")
        array = _array(value)
        if array.ndim == 3 and array.shape[2] == 1:
            array = array[:, :, 0]
        value = Image.fromarray(array)
    form, options = _FORMATS[ending]
    out = io.BytesIO()
    value.save(out, form, **options)
    return out.getvalue()
