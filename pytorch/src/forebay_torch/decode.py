"""What the parts of samples are, by the endings of their names."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import torch

if TYPE_CHECKING:
    from forebay_torch.fields import Fields

__all__ = ["Decoder"]

Images = Literal["pil", "numpy", "tensor"] | None

_IMAGES = frozenset(("jpg", "jpeg", "png", "webp", "bmp", "gif", "ppm", "pgm", "tif", "tiff"))


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
        images: ``tensor``: uint8 of shape (3, height, width); ``numpy``: uint8 of shape (height,
            width, 3); ``pil``: an RGB image of Pillow; None: bytes.
        more: Ending or whole extension -> function of the bytes; goes before the table.

    Raises:
        ValueError: ``images`` is none of these.
        ImportError: Pillow or numpy is missing, when the first part that needs it comes.

    Example:
        >>> reader = ShardReader(bucket, decode=Decoder(images="tensor"))
    """

    def __init__(
        self, images: Images = "pil", more: Mapping[str, Callable[[bytes], Any]] | None = None
    ) -> None:
        if images not in ("pil", "numpy", "tensor", None):
            raise ValueError(f'images is "pil", "numpy", "tensor" or None, not {images!r}')
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
        """What one part becomes.

        Args:
            extension: Of its name, or the whole name.
        """
        ending = extension.rpartition(".")[2].lower()
        own = self._more.get(extension) or self._more.get(ending)
        if own is not None:
            return own(content)
        if ending in _IMAGES:
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
        with Image.open(io.BytesIO(content)) as opened:
            image = opened.convert("RGB")
        if self._images == "pil":
            return image
        if self._images == "numpy":
            import numpy

            return numpy.array(image)
        flat = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
        return flat.reshape(image.height, image.width, 3).permute(2, 0, 1).contiguous()


def _text(content: bytes) -> str:
    return content.decode()


def _numpy(content: bytes) -> Any:
    import numpy

    loaded = numpy.load(io.BytesIO(content), allow_pickle=False)
    return loaded if isinstance(loaded, numpy.ndarray) else dict(loaded)


def _torch(content: bytes) -> Any:
    return torch.load(io.BytesIO(content), weights_only=True)


_BY_ENDING: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(("cls", "cls2", "count", "index", "id"), int),
    **dict.fromkeys(("txt", "text", "transcript"), _text),
    **dict.fromkeys(("json", "jsn"), json.loads),
    **dict.fromkeys(("npy", "npz"), _numpy),
    **dict.fromkeys(("pt", "pth"), _torch),
}
