"""The bytes of an object as a seekable binary file."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from forebay.errors import InvalidArgument
from forebay.positioned import Positioned

if TYPE_CHECKING:
    import torch
    from typing_extensions import Buffer

__all__ = ["Reader"]

_PIECE_BYTES = 1 << 20
# Inside Reader, whose method is called so, the bare name would mean the method.
_View: TypeAlias = memoryview


class Reader(Positioned, io.BufferedIOBase):
    """The bytes of an object, or of a part of it, as a seekable binary file.

    ``read_all`` and ``memoryview`` are one request. Iteration gives pieces as they arrive and
    keeps none of them. The methods of a file (``read``, ``seek``) hold the whole content.
    """

    def __init__(
        self,
        load: Callable[[], _View],
        stream: Callable[[], Iterator[_View]] | None = None,
        receive: Callable[[Buffer, int], int] | None = None,
        size: Callable[[], int] | None = None,
        read: Callable[[], bytes] | None = None,
    ) -> None:
        """A reader of what ``load`` returns; called at most once, when it is first needed.

        Args:
            stream: The same content piece by piece, for iteration.
            receive: Writes the same content over a buffer from an offset on; how many bytes.
            size: How many bytes there are.
            read: The same content as ``bytes``, instead of a copy of what ``load`` returns.
        """
        super().__init__()
        self._load = load
        self._stream = stream
        self._receive = receive
        self._size = size
        self._read = read
        self._content: _View | None = None
        self._position = 0

    def memoryview(self) -> _View:
        """The whole content, without a copy."""
        if self._content is None:
            self._content = self._load()
        return self._content

    def read_all(self) -> bytes:
        """The whole content."""
        if self._content is None and self._read is not None:
            self._content = memoryview(self._read())
        content = self.memoryview()
        whole = content.obj
        if isinstance(whole, bytes) and len(whole) == content.nbytes:
            return whole
        return bytes(content)

    def read_into(self, buffer: Buffer, offset: int = 0) -> int:
        """Receives the whole content into ``buffer`` from ``offset`` on; how many bytes that were.

        The bytes are written where they belong as they arrive: there is no other copy of them. The
        position of this file does not change.

        Raises:
            BufferError: The buffer is read-only, or not contiguous.
            InvalidArgument: The content does not fit; nothing was written.
        """
        if self._receive is not None and self._content is None:
            return self._receive(buffer, offset)
        content = self.memoryview()
        target = memoryview(buffer).cast("B")
        if target.readonly:
            raise BufferError("the buffer is read-only")
        room = len(target) - offset
        if len(content) > room:
            raise InvalidArgument(f"{len(content)} bytes do not fit into a buffer of {room}")
        target[offset : offset + len(content)] = content
        return len(content)

    def as_tensor(
        self, dtype: torch.dtype | None = None, shape: Sequence[int] | None = None
    ) -> torch.Tensor:
        """The whole content as a tensor over the very memory that it was received into.

        Args:
            dtype: The type of the elements; ``torch.uint8`` by default.
            shape: By default one dimension with all elements.

        Raises:
            ModuleNotFoundError: PyTorch is not installed.
            ValueError: The content is no whole number of elements.
            RuntimeError: It has another number of elements than ``shape``.
        """
        import torch

        if self._content is None and self._receive is not None and self._size is not None:
            memory = bytearray(self._size())
            received = self.read_into(memory)
            if received < len(memory):
                del memory[received:]
        else:
            memory = bytearray(self.memoryview())
        kind = torch.uint8 if dtype is None else dtype
        if not memory:
            flat = torch.empty(0, dtype=kind)
        else:
            flat = torch.frombuffer(memory, dtype=kind)
        return flat if shape is None else flat.reshape(tuple(shape))

    def __iter__(self) -> Iterator[_View]:  # type: ignore[override]
        if self._content is None and self._stream is not None:
            yield from self._stream()
            return
        content = self.memoryview()
        for start in range(0, len(content), _PIECE_BYTES):
            yield content[start : start + _PIECE_BYTES]

    def read(self, size: int | None = -1, /) -> bytes:
        content = self.memoryview()
        end = len(content) if size is None or size < 0 else self._position + size
        part = content[self._position : end]
        self._position += len(part)
        return bytes(part)

    read1 = read

    def readinto(self, buffer: Buffer, /) -> int:
        target = memoryview(buffer).cast("B")
        part = self.memoryview()[self._position : self._position + len(target)]
        target[: len(part)] = part
        self._position += len(part)
        return len(part)

    readinto1 = readinto

    def _length(self) -> int:
        return len(self.memoryview())
