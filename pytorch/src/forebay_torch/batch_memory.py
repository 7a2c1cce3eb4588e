"""Batches of tensors in memory that is used again.

A loop drops each batch when it has the next. Memory that an allocator gives back to the system has to be had
anew, page by page, by the batch after it, which costs more than copying the samples into it.
"""

from __future__ import annotations

import mmap
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data import get_worker_info
from torch.utils.data._utils.collate import collate, default_collate_fn_map

__all__ = ["BatchMemory"]

# Below this an allocator keeps what it gets.
_REUSE_MIN_BYTES = 1 << 20
# Pieces of memory that nobody has, at most.
_MAX_FREE_BLOCKS = 2


class BatchMemory:
    """Makes batches as torch's ``default_collate`` does, each large tensor in memory of one before it
    that is gone.

    A piece of memory is used again when the last tensor, view or array in it has gone, and not before.
    """

    def __init__(self) -> None:
        self._free: deque[mmap.mmap] = deque(maxlen=_MAX_FREE_BLOCKS)
        # A tensor made of a buffer keeps the object that it was made of, as torch does it today.
        self._is_kept = True

    def collate(self, samples: Any) -> Any:
        """The batch of these samples, as ``torch.utils.data.default_collate`` makes it."""
        return collate(samples, collate_fn_map={**default_collate_fn_map, torch.Tensor: self._stack})

    def _stack(
        self,
        tensors: Sequence[torch.Tensor],
        *,
        collate_fn_map: dict[Any, Callable[..., Any]] | None = None,
    ) -> Any:
        """Tensors of one shape S as one of shape (N, *S)."""
        first = tensors[0]
        size = len(tensors) * first.numel() * first.element_size()
        # In the worker of a DataLoader torch makes it in memory that processes share.
        own = self._is_kept and size >= _REUSE_MIN_BYTES and get_worker_info() is None
        own = own and all(_is_plain(tensor, first) for tensor in tensors)
        flat = self._flat(size, first.dtype) if own else None
        if flat is None:
            return default_collate_fn_map[torch.Tensor](tensors, collate_fn_map=collate_fn_map)
        return torch.stack(list(tensors), 0, out=flat.view(len(tensors), *first.shape))

    def _flat(self, size: int, dtype: torch.dtype) -> torch.Tensor | None:
        """A tensor of so many bytes; None where this torch does not keep what a tensor is made of."""
        view = self._take(size)
        kept = weakref.ref(view)
        flat = torch.frombuffer(view, dtype=dtype)
        del view
        # Else the memory would be somebody else's as soon as the next batch is made.
        self._is_kept = kept() is not None
        return flat if self._is_kept else None

    def _take(self, size: int) -> memoryview:
        """Returns memory of ``size`` bytes, which is reused when no object refers to it any more."""
        try:
            memory = self._free.popleft()
        except IndexError:
            memory = None
        if memory is None or not size <= len(memory) <= 2 * size:
            # Private: in a forked process it becomes that one's own.
            memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        view = memoryview(memory)[:size]
        weakref.finalize(view, self._free.append, memory).atexit = False
        return view


def _is_plain(tensor: torch.Tensor, first: torch.Tensor) -> bool:
    """Whether the tensor is one of those that are stacked into memory from elsewhere."""
    return (
        type(tensor) is torch.Tensor
        and tensor.dtype == first.dtype
        and tensor.shape == first.shape
        and tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and not tensor.requires_grad
        and not tensor.is_nested
        and not tensor.is_quantized
    )
