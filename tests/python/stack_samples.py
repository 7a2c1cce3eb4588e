"""The samples that programs of data stacks write and read, for the programs and their tests."""

from __future__ import annotations

from typing import Any


def sample(number: int) -> bytes:
    """Bytes that only this number has, of a length of its own."""
    return (f"sample {number} " * (100 + number % 50)).encode()


def every_one_once(epochs: list[list[int]], count: int) -> bool:
    """Whether each epoch has each number below `count` once."""
    return all(sorted(epoch) == list(range(count)) for epoch in epochs)


def together(ranks: list[Any]) -> list[list[int]]:
    """The epochs of all ranks, of each the numbers that any of the ranks had."""
    of_ranks = [rank["epochs"] for rank in ranks]
    return [sum(parts, []) for parts in zip(*of_ranks, strict=True)]
