"""How the files of a distributed checkpoint are called: begins of names that spread the load."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch.distributed as dist

__all__ = [
    "BinaryPrefixStrategy",
    "DefaultPrefixStrategy",
    "HexPrefixStrategy",
    "NumericPrefixStrategy",
    "PrefixStrategy",
    "RoundRobinPrefixStrategy",
]

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class PrefixStrategy(ABC):
    """Gives each rank the begin of its files' names, which may have folders."""

    def __call__(self, rank: int) -> str:
        """The same as ``generate_prefix``."""
        return self.generate_prefix(rank)

    @abstractmethod
    def generate_prefix(self, rank: int) -> str:
        """How the names of this rank's files begin."""


class DefaultPrefixStrategy(PrefixStrategy):
    """The rank alone: ``__3_``."""

    def generate_prefix(self, rank: int) -> str:
        return f"__{rank}_"


class _Foldered(PrefixStrategy):
    """A folder out of a list, one of the epoch in it if there is one, then the rank."""

    def __init__(self, folders: Sequence[str], epoch_num: int | None) -> None:
        if epoch_num is not None and not isinstance(epoch_num, int):
            raise ValueError(f"epoch_num is a number or None, not {epoch_num!r}")
        self.epoch_num = epoch_num
        self._folders = list(folders)

    def generate_prefix(self, rank: int) -> str:
        epoch = "" if self.epoch_num is None else f"epoch_{self.epoch_num}/"
        return f"{self._folders[rank % len(self._folders)]}/{epoch}__{rank}_"


class RoundRobinPrefixStrategy(_Foldered):
    """Folders of the user's own, one rank after the other.

    Args:
        user_prefixes: Names of folders under the checkpoint's path.
        epoch_num: Files lie in ``epoch_N`` in them.

    Raises:
        ValueError: There are none.
    """

    def __init__(self, user_prefixes: Sequence[str], epoch_num: int | None = None) -> None:
        if not user_prefixes:
            raise ValueError("user_prefixes must have at least one name")
        self.user_prefixes = [prefix.strip("/") for prefix in user_prefixes]
        super().__init__(self.user_prefixes, epoch_num)


class NumericPrefixStrategy(_Foldered):
    """Folders that are numbers with their digits turned round: they differ in the first letter, by
    which clouds divide buckets.

    Args:
        base: Of the numbers, 2 to 36.
        epoch_num: Files lie in ``epoch_N`` in them.
        min_prefix_length: Digits at least; numbers are filled with zeros.
        prefix_count: How many folders; by default as many as there are ranks now.

    Raises:
        ValueError: A number makes no sense.
    """

    def __init__(
        self,
        base: int,
        epoch_num: int | None = None,
        min_prefix_length: int = 10,
        prefix_count: int | None = None,
    ) -> None:
        if not 2 <= base <= len(_DIGITS):
            raise ValueError(f"base is from 2 to {len(_DIGITS)}, not {base}")
        if min_prefix_length < 1:
            raise ValueError(f"min_prefix_length must be at least 1, not {min_prefix_length}")
        if prefix_count is None:
            prefix_count = dist.get_world_size() if dist.is_initialized() else 1
        if prefix_count < 1:
            raise ValueError(f"prefix_count must be at least 1, not {prefix_count}")
        self.base = base
        self.prefix_count = prefix_count
        numbers = [_turned(number, base) for number in range(prefix_count)]
        length = max(min_prefix_length, *map(len, numbers))
        self.prefix_map = [digits.ljust(length, "0") for digits in numbers]
        super().__init__(self.prefix_map, epoch_num)


class BinaryPrefixStrategy(NumericPrefixStrategy):
    """Folders of zeros and ones; arguments as for NumericPrefixStrategy."""

    def __init__(
        self,
        epoch_num: int | None = None,
        min_prefix_length: int = 10,
        prefix_count: int | None = None,
    ) -> None:
        super().__init__(2, epoch_num, min_prefix_length, prefix_count)


class HexPrefixStrategy(NumericPrefixStrategy):
    """Folders of hexadecimal digits; arguments as for NumericPrefixStrategy."""

    def __init__(
        self,
        epoch_num: int | None = None,
        min_prefix_length: int = 10,
        prefix_count: int | None = None,
    ) -> None:
        super().__init__(16, epoch_num, min_prefix_length, prefix_count)


def _turned(number: int, base: int) -> str:
    """The digits of a number, the last one first."""
    digits = ""
    while number:
        number, digit = divmod(number, base)
        digits += _DIGITS[digit]
    return digits or "0"
