"""A listing that stays small: all names in one buffer, 16 bytes per object beside them."""

from __future__ import annotations

import operator
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, SupportsIndex, overload

__all__ = ["Listing"]


class Listing(Sequence[tuple[str, int]]):
    """Names and sizes of objects, as a sequence of ``(name, size)``.

    It holds three flat buffers and no object per row, so that forked workers share it without
    copying: reading a row writes to none of its pages.

    Example:
        >>> Listing.from_pairs([("a", 1), ("b", 22)])[-1]
        ('b', 22)
    """

    __slots__ = ("_names", "_offsets", "_sizes")

    def __init__(self, names: bytes, offsets: array[int], sizes: array[int]) -> None:
        """Wraps the buffers: row i is ``names[offsets[i]:offsets[i + 1]]`` and ``sizes[i]``."""
        if len(offsets) != len(sizes) + 1 or offsets[-1] != len(names):
            raise ValueError("the buffers of a listing do not fit together")
        self._names = names
        self._offsets = offsets
        self._sizes = sizes

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[str, int]]) -> Listing:
        """A listing of these rows, in this order."""
        names, offsets, sizes = bytearray(), array("Q", [0]), array("Q")
        for name, size in pairs:
            names += name.encode()
            offsets.append(len(names))
            sizes.append(size)
        return cls(bytes(names), offsets, sizes)

    @classmethod
    def from_buffers(cls, names: bytes, offsets: bytes, sizes: bytes) -> Listing:
        """A listing from buffers of 8-byte numbers in the machine's byte order."""
        offset_array, size_array = array("Q"), array("Q")
        offset_array.frombytes(offsets)
        size_array.frombytes(sizes)
        return cls(names, offset_array, size_array)

    @classmethod
    def concat(cls, parts: Sequence[Listing]) -> Listing:
        """All rows of several listings, one after the other."""
        if len(parts) == 1:
            return parts[0]
        offsets, sizes, base = array("Q", [0]), array("Q"), 0
        for part in parts:
            offsets.extend(base + end for end in memoryview(part._offsets)[1:])
            sizes.extend(part._sizes)
            base += len(part._names)
        return cls(b"".join(part._names for part in parts), offsets, sizes)

    def buffers(self) -> tuple[bytes, bytes]:
        """All names as one text, and the offsets between them as 8-byte numbers."""
        return self._names, self._offsets.tobytes()

    @property
    def sizes(self) -> array[int]:
        """The sizes alone, 8 bytes each; to read, not to write."""
        return self._sizes

    @property
    def total_size(self) -> int:
        """Bytes of all objects together."""
        return sum(self._sizes)

    def name(self, index: int) -> str:
        """The name in row ``index``; negative indices count from the end."""
        index = self._row(index)
        return self._names[self._offsets[index] : self._offsets[index + 1]].decode()

    def names_at(self, rows: Iterable[int]) -> list[str]:
        """The names in these rows, of which none may be negative.

        Raises:
            IndexError: There is no such row.
        """
        names, offsets = self._names, self._offsets
        if isinstance(rows, range) and rows.step == 1 and 0 <= rows.start < rows.stop:
            if rows.stop > len(self):
                raise IndexError(f"there is no row {rows.stop - 1}")
            ends = offsets[rows.start : rows.stop + 1]
            return [names[start:end].decode() for start, end in pairwise(ends)]
        return [names[offsets[row] : offsets[row + 1]].decode() for row in rows]

    def names(self) -> Iterator[str]:
        """All names, in order."""
        for start, end in pairwise(self._offsets):
            yield self._names[start:end].decode()

    def __len__(self) -> int:
        return len(self._sizes)

    @overload
    def __getitem__(self, index: SupportsIndex) -> tuple[str, int]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[str, int]]: ...
    def __getitem__(self, index: Any) -> tuple[str, int] | list[tuple[str, int]]:
        if isinstance(index, slice):
            return [(self.name(i), self._sizes[i]) for i in range(*index.indices(len(self)))]
        row = self._row(operator.index(index))
        return self.name(row), self._sizes[row]

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return zip(self.names(), self._sizes, strict=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Listing):
            return NotImplemented
        return (self._sizes, self._offsets, self._names) == (
            other._sizes,
            other._offsets,
            other._names,
        )

    def __hash__(self) -> int:
        return hash((len(self), self._names))

    def __reduce__(self) -> tuple[Any, ...]:
        return Listing, (self._names, self._offsets, self._sizes)

    def __repr__(self) -> str:
        return f"<Listing of {len(self)} objects, {self.total_size} bytes>"

    def _row(self, index: int) -> int:
        row = index + len(self) if index < 0 else index
        if not 0 <= row < len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} objects")
        return row
