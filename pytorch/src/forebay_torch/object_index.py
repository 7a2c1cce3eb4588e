"""The objects of a dataset by position, and the ways to read them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import TypeAlias

from forebay import Bucket, ForebayError, Listing, Object, ShardIndex
from forebay.single_reads import get_pinned, get_transformed
from forebay_torch.prefetched_object import PrefetchedObject

__all__ = ["Answer", "ObjectIndex", "views"]

Answer: TypeAlias = memoryview | bytes | ForebayError
"""The content of an object, or why it cannot be had."""


class ObjectIndex:
    """All objects of a dataset by position: a compact listing, the bucket of each row, and how the
    objects are read."""

    __slots__ = ("listing", "pins", "etl_name", "_buckets", "_ends")

    def __init__(
        self,
        parts: Sequence[tuple[Bucket, Listing]],
        pins: Listing | None = None,
        etl_name: str = "",
    ) -> None:
        """An index of these listings.

        Args:
            pins: The version of each row's content when it was listed; only that version is read.
            etl_name: A transform of the cluster through which objects are read.
        """
        self.listing = Listing.concat([listing for _, listing in parts])
        self.pins = pins
        self.etl_name = etl_name
        self._buckets = tuple(bucket for bucket, _ in parts)
        self._ends = tuple(accumulate(len(listing) for _, listing in parts))
        endpoints = sorted({bucket.client.endpoint for bucket in self._buckets})
        if len(endpoints) > 1:
            raise ValueError(f"the sources of a dataset are in one cluster, not in {endpoints}")

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """The buckets of the objects."""
        return self._buckets

    def chosen(self, rows: Sequence[int]) -> ObjectIndex:
        """The objects in these rows alone, which are in order."""
        made = ObjectIndex.__new__(ObjectIndex)
        made.listing = Listing.from_pairs(map(self.listing.__getitem__, rows))
        pins = self.pins
        made.pins = None if pins is None else Listing.from_pairs(map(pins.__getitem__, rows))
        made.etl_name, made._buckets = self.etl_name, self._buckets
        made._ends = tuple(bisect_left(rows, end) for end in self._ends)
        return made

    def bucket(self, index: int) -> Bucket:
        """The bucket of the object at ``index`` (not negative)."""
        return self._buckets[bisect_right(self._ends, index)]

    def object(self, index: int) -> Object:
        """The object at ``index`` (not negative)."""
        name, size = self.listing[index]
        plain = Object(self.bucket(index), name, size)
        if not self.is_special:
            return plain
        return PrefetchedObject(plain, lambda: self.get_many([index])[0], self.etl_name == "")

    @property
    def is_special(self) -> bool:
        """Whether objects are read one by one, through a transform or by their pins."""
        return bool(self.etl_name) or self.pins is not None

    def shard_indexes(
        self, indices: Sequence[int], concurrency: int = 16
    ) -> list[ShardIndex | ForebayError]:
        """Returns the indexes of the shards at these positions; in place of an index, its error."""
        shards = [self.object(i) for i in indices]
        if not shards:
            return []
        return shards[0].bucket.client.shard_indexes(shards, concurrency=concurrency)

    def get_many(self, indices: Iterable[int]) -> list[memoryview]:
        """The contents of these objects, as one batch over all buckets.

        Raises:
            ForebayError: The first of them that cannot be had.
        """
        return views(self.try_many(list(indices)))

    def stream(self, indices: Sequence[int]) -> Iterator[Answer]:
        """As ``try_many``, each answer as soon as it and all before it have arrived."""
        if self.is_special:
            yield from self.try_many(indices)
            return
        batch = self.bucket(indices[0]).client.batch(map(self.object, indices), on_error="return")
        for result, content in batch.get():
            yield content if result.error is None else result.error

    def try_many(
        self, rows: Sequence[int], names: Sequence[str] | None = None, *, as_bytes: bool = False
    ) -> Sequence[Answer]:
        """As ``get_many``; in place of what cannot be had, why.

        Args:
            names: Those of the rows, if they are known.
            as_bytes: They may be ``bytes`` instead of views.
        """
        if not rows:
            return []
        wanted = self._wanted(rows, names)
        if self.etl_name:
            return get_transformed(wanted, self.etl_name)
        if self.pins is not None:
            return get_pinned(wanted, [self.pins[row] for row in rows])
        client = wanted[0][0].client
        if as_bytes:
            return client.get_many(wanted, on_error="return", as_bytes=True)
        return client.get_many(wanted, on_error="return")

    def submit_many(
        self, rows: Sequence[int], names: Sequence[str] | None = None, *, as_bytes: bool = False
    ) -> Callable[[], Sequence[Answer]]:
        """Starts ``try_many`` of these rows and returns the function that waits for the answers.

        Objects that are read as they are stored arrive in the background. As ``bytes`` they are
        copied when they are waited for, so that the next ones reuse the memory.
        """
        if self.is_special or not rows:
            return partial(self.try_many, rows, names)
        wanted = self._wanted(rows, names)
        return wanted[0][0].client.submit_many(wanted, as_bytes=as_bytes).result

    def _wanted(
        self, rows: Sequence[int], names: Sequence[str] | None = None
    ) -> list[tuple[Bucket, str]]:
        names = self.listing.names_at(rows) if names is None else names
        if len(self._buckets) == 1:
            buckets = [self._buckets[0]] * len(rows)
        else:
            buckets = [self.bucket(row) for row in rows]
        return list(zip(buckets, names, strict=True))


def views(answers: Iterable[Answer]) -> list[memoryview]:
    """The contents, none of which may be missing.

    Raises:
        ForebayError: The first of them that cannot be had.
    """
    contents = []
    for answer in answers:
        if isinstance(answer, ForebayError):
            raise answer
        contents.append(answer if isinstance(answer, memoryview) else memoryview(answer))
    return contents
