"""Batches of bytes as tensors, in one block of memory."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import get_worker_info

__all__ = ["ByteBatch", "collate"]


class ByteBatch(Sequence[torch.Tensor]):
    """The contents of a batch of objects behind each other, as uint8.

    ``batch[i]`` is the i-th content, of shape (its bytes,), a view of ``data``.

    Attributes:
        data: All bytes, uint8 of shape (bytes of the batch,).
        offsets: Where each begins, and the end of the last: int64 of shape (samples + 1,).
        names: Names of the objects, where the samples had them.
    """

    def __init__(
        self, data: torch.Tensor, offsets: torch.Tensor, names: list[str] | None = None
    ) -> None:
        self.data = data
        self.offsets = offsets
        self.names = names

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        return self.data[int(self.offsets[number]) : int(self.offsets[number + 1])]

    @property
    def lengths(self) -> torch.Tensor:
        """Bytes of each content: int64 of shape (samples,)."""
        return torch.diff(self.offsets)

    def padded(self, value: int = 0) -> torch.Tensor:
        """The contents as rows, filled up: uint8 of shape (samples, bytes of the longest)."""
        width = int(self.lengths.max()) if len(self) else 0
        rows = torch.full((len(self), width), value, dtype=torch.uint8)
        for number, content in enumerate(self):
            rows[number, : len(content)] = content
        return rows

    def pin_memory(self) -> ByteBatch:
        """The same in pinned memory, from where a GPU copies without waiting."""
        return ByteBatch(self.data.pin_memory(), self.offsets.pin_memory(), self.names)

    def to(self, *target: Any, **options: Any) -> ByteBatch:
        """The same with its bytes on another device."""
        return ByteBatch(self.data.to(*target, **options), self.offsets, self.names)

    def __dlpack__(self, **options: Any) -> Any:
        """``data`` for other libraries, without a copy."""
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.data.__dlpack_device__()

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        """The contents as a LargeBinary array of Arrow, without a copy.

        Raises:
            ImportError: pyarrow is missing.
        """
        pyarrow: Any = importlib.import_module("pyarrow")
        buffers = [None, *(pyarrow.py_buffer(t.numpy()) for t in (self.offsets, self.data))]
        array = pyarrow.Array.from_buffers(pyarrow.large_binary(), len(self), buffers)
        return array.__arrow_c_array__(requested_schema)

    def __repr__(self) -> str:
        return f"<ByteBatch of {len(self)} samples, {len(self.data)} bytes>"


def collate(batch: Sequence[Any], *, pad: int | None = None) -> Any:
    """The ``collate_fn`` for samples that are bytes: one block, one copy of each byte.

    In a worker process the block is in shared memory, so that the training process gets it uncopied.

    Args:
        batch: Contents, or ``(name, content)``; bytes, or any other buffer.
        pad: Fill all up to the longest with this value.

    Returns:
        A ByteBatch; with ``pad`` a pair of uint8 of shape (samples, longest) and int64 of shape
        (samples,), the lengths.

    Raises:
        TypeError: A sample is something else.

    Example:
        >>> loader = DataLoader(MapDataset(bucket), batch_size=64, collate_fn=collate)
    """
    names: list[str] | None = None
    if batch and isinstance(batch[0], tuple):
        names = [name for name, _ in batch]
        batch = [content for _, content in batch]
    try:
        contents = [memoryview(content).cast("B") for content in batch]
    except TypeError:
        kinds = sorted({type(sample).__name__ for sample in batch})
        raise TypeError(
            f"collate takes samples of bytes, or of (name, bytes), not of {', '.join(kinds)}"
        ) from None
    lengths = torch.tensor([len(content) for content in contents], dtype=torch.int64)
    if pad is not None:
        width = int(lengths.max()) if contents else 0
        rows = _block(len(contents) * width).fill_(pad)
        target = _writable(rows)
        for number, content in enumerate(contents):
            target[number * width : number * width + len(content)] = content
        return rows.reshape(len(contents), width), lengths
    offsets = torch.zeros(len(contents) + 1, dtype=torch.int64)
    torch.cumsum(lengths, 0, out=offsets[1:])
    data = _block(int(offsets[-1]))
    target, end = _writable(data), 0
    for content in contents:
        target[end : end + len(content)] = content
        end += len(content)
    return ByteBatch(data, offsets, names)


def _block(size: int) -> torch.Tensor:
    """Allocates ``size`` bytes, in a worker process in shared memory."""
    block = torch.empty(size, dtype=torch.uint8)
    if get_worker_info() is not None:
        block.share_memory_()  # type: ignore[no-untyped-call]
    return block


def _writable(block: torch.Tensor) -> memoryview:
    array: Any = block.numpy()
    return memoryview(array)
