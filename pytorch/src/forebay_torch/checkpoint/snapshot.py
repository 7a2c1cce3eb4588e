"""A copy of a state in memory, so that training goes on while it is saved."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch

__all__ = ["snapshot"]


def snapshot(state: Any) -> Any:
    """A copy on the CPU of all tensors in nested dicts, lists and tuples, and of what is beside.

    Tensors that share memory, such as tied weights and views, share that of the copy. A
    value without a copy, such as an open file, is taken as it is.
    """
    return _copied(state, {})


def _copied(value: Any, seen: dict[Any, Any]) -> Any:
    if isinstance(value, torch.Tensor):
        return _tensor(value, seen)
    if id(value) in seen:
        return seen[id(value)][0]
    copied: Any
    if isinstance(value, dict):
        # Of its own class, attributes included: a state_dict carries versions in one.
        copied = copy.copy(value)
        for key, item in value.items():
            copied[key] = _copied(item, seen)
    elif isinstance(value, Mapping):
        copied = {key: _copied(item, seen) for key, item in value.items()}
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        copied = type(value)(*(_copied(item, seen) for item in value))
    elif type(value) in (list, tuple):
        copied = type(value)(_copied(item, seen) for item in value)
    else:
        try:
            copied = copy.deepcopy(value)
        except Exception:
            copied = value
    # With the original, whose id is another's as soon as it is gone.
    seen[id(value)] = (copied, value)
    return copied


def _tensor(value: torch.Tensor, seen: dict[Any, Any]) -> torch.Tensor:
    plain = value.detach()
    if type(plain) is not torch.Tensor or plain.layout is not torch.strided or plain.is_quantized:
        return plain.to("cpu", copy=True)
    storage = plain.untyped_storage()
    where = (storage.device, storage.data_ptr(), storage.nbytes())
    if where not in seen or storage.nbytes() == 0:
        memory = torch.empty(storage.nbytes(), dtype=torch.uint8)
        memory.untyped_storage().copy_(storage)
        seen[where] = (memory.untyped_storage(), storage)
    copied = torch.empty(0, dtype=plain.dtype)
    copied.set_(seen[where][0], plain.storage_offset(), plain.size(), plain.stride())
    if plain.is_conj():
        copied = copied.conj()
    if plain.is_neg():
        copied = torch._neg_view(copied)
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(copied, requires_grad=value.requires_grad)
    return copied
