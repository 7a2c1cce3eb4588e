"""Decoders of the parts of samples, chosen by the endings of their names."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import torch

if TYPE_CHECKING:
    from forebay_torch.fields import Fields

__all__ = ["Decoder"]

Images = Literal["pil", "numpy", "tensor", "pil-rgb", "numpy-rgb", "tensor-rgb"] | None

IMAGE_ENDINGS = frozenset(
    ("jpg", "jpeg", "png", "webp", "bmp", "gif", "ppm", "pgm", "tif", "tiff")
)
NUMBER_ENDINGS = ("cls", "cls2", "count", "index", "id")
# Modes of Pillow that 8 bits a channel cannot hold.
_DEEP_MODES = ("I", "F")
_FORMS = ("pil", "numpy", "tensor", "pil-rgb", "numpy-rgb", "tensor-rgb")


class Decoder:
    """Decodes the parts of samples by extension, as ``decode`` of the datasets over shards.

    | ending | becomes |
    |---|---|
    | ``cls``, ``cls2``, ``count``, ``index``, ``id`` | ``int`` |
    | ``txt``, ``text``, ``transcript`` | ``str``, from UTF-8 |
    | ``json``, ``jsn`` | what the JSON says |
    | ``npy``, ``npz`` | numpy arrays (pickled objects are refused) |
    | ``pt``, ``pth`` | what ``torch.load(weights_only=True)`` gives |
    | ``jpg``, ``png``, ``webp`` and other images | see ``images`` |

    The ending is what follows the last dot of an extension, in lower case; ``seg.png`` is an
    image. Parts with other endings stay bytes.

    Args:
        images: ``pil``: an image of Pillow, in the mode that the file has; ``numpy``: an array of
            shape (height, width) or (height, width, channels); ``tensor``: of shape (channels,
            height, width); None: bytes. An image stays what it is: of a palette image, such as a
            mask of classes, arrays have the numbers of the palette; grey has one channel, alpha is
            kept, 1 bit is bool, 16 bits are uint16 (in tensors int32), 32 bits int32 or float32.
            ``pil-rgb``, ``numpy-rgb`` and ``tensor-rgb`` convert to three channels of 8 bits.
        more: Ending or whole extension -> function of the bytes; goes before the table.

    Raises:
        ValueError: ``images`` is none of these. At an image: it has more bits than ``…-rgb`` can
            hold, or 16 bits in each of several channels, of which Pillow reads 8.
        ImportError: Pillow or numpy is missing, when the first part that needs it comes.

    Example:
        >>> reader = ShardReader(bucket, decode=Decoder(images="tensor"))
    """

    def __init__(
        self, images: Images = "pil", more: Mapping[str, Callable[[bytes], Any]] | None = None
    ) -> None:
        if images is not None and images not in _FORMS:
            forms = ", ".join(f'"{form}"' for form in _FORMS)
            raise ValueError(f"images is {forms} or None, not {images!r}")
        self._images = images
        self._more = dict(more or {})

    def __call__(self, key: str, fields: Fields) -> Fields:
        for extension in fields:
            try:
                fields[extension] = self.part(extension, fields[extension])
            except Exception as error:
                error.add_note(f"while decoding {extension!r}")
                raise
        return fields

    def part(self, extension: str, content: bytes) -> Any:
        """Decodes one part.

        Args:
            extension: Of its name, or the whole name.
        """
        ending = extension.rpartition(".")[2].lower()
        own = self._more.get(extension) or self._more.get(ending)
        if own is not None:
            return own(content)
        if ending in IMAGE_ENDINGS:
            return self._image(content)
        decode = _BY_ENDING.get(ending)
        return content if decode is None else decode(content)

    def _image(self, content: bytes) -> Any:
        if self._images is None:
            return content
        try:
            from PIL import Image
        except ImportError:
            raise ImportError("decoding images needs Pillow: pip install pillow") from None
        form, _, converted = self._images.partition("-")
        with Image.open(io.BytesIO(content)) as opened:
            if converted:
                if opened.mode.startswith(_DEEP_MODES):
                    raise ValueError(
                        f"an image of mode {opened.mode} has more than the 8 bits a channel that "
                        f'images="{self._images}" can hold; take images="{form}"'
                    )
                image = opened.convert("RGB")
            else:
                _check_is_kept(opened)
                opened.load()
                image = opened.copy()
        if form == "pil":
            return image
        if form == "numpy":
            import numpy

            return numpy.array(image)
        return _tensor(image)


def _check_is_kept(image: Any) -> None:
    """Refuses an image of which Pillow drops bits: 16 in each of several channels."""
    is_deep = any(";16" in str(tile[3]) for tile in getattr(image, "tile", ()))
    if is_deep and not image.mode.startswith(_DEEP_MODES):
        raise ValueError(
            f"an image of 16 bits a channel, of which Pillow keeps 8 (mode {image.mode}): "
            "images=\"…-rgb\" accepts that, or give a function of your own in more="
        )


def _tensor(image: Any) -> torch.Tensor:
    """The image as (channels, height, width)."""
    dtype = torch.uint8
    is_bool = image.mode == "1"
    if is_bool:
        image = image.convert("L")
    elif image.mode.startswith("I"):
        # uint16 of torch has few operations.
        image, dtype = (image if image.mode == "I" else image.convert("I")), torch.int32
    elif image.mode == "F":
        dtype = torch.float32
    flat = torch.frombuffer(bytearray(image.tobytes()), dtype=dtype)
    channels = len(image.getbands())
    shaped = flat.reshape(image.height, image.width, channels).permute(2, 0, 1).contiguous()
    return shaped != 0 if is_bool else shaped


def _text(content: bytes) -> str:
    return content.decode()


def _numpy(content: bytes) -> Any:
    import numpy

    loaded = numpy.load(io.BytesIO(content), allow_pickle=False)
    return loaded if isinstance(loaded, numpy.ndarray) else dict(loaded)


def _torch(content: bytes) -> Any:
    return torch.load(io.BytesIO(content), weights_only=True)


_BY_ENDING: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(NUMBER_ENDINGS, int),
    **dict.fromkeys(("txt", "text", "transcript"), _text),
    **dict.fromkeys(("json", "jsn"), json.loads),
    **dict.fromkeys(("npy", "npz"), _numpy),
    **dict.fromkeys(("pt", "pth"), _torch),
}
