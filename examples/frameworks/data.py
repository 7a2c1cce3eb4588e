"""Samples of the examples of frameworks: objects whose contents are numbers."""

from __future__ import annotations

import torch

__all__ = ["number", "seen_by_all"]


def number(content: bytes) -> torch.Tensor:
    """The sample of an object; stands for decoding."""
    return torch.tensor(int(content))


def seen_by_all(seen: list[int]) -> list[int]:
    """Returns the numbers that all ranks have seen, on every rank."""
    distributed = torch.distributed
    if not distributed.is_initialized():
        return seen
    everything: list[list[int]] = [[] for _ in range(distributed.get_world_size())]
    distributed.all_gather_object(everything, seen)
    return [number for of_rank in everything for number in of_rank]
