"""The base class of map-style datasets: listed objects, fetched in batches."""

from __future__ import annotations

import operator
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, SupportsIndex, overload

from torch.utils.data import Dataset

from forebay import Client, ForebayError, Listing, Object
from forebay_torch import frameworks
from forebay_torch.aio import AsyncItems
from forebay_torch.config import Config
from forebay_torch.custom_getitem import CustomGetItem, cached_content
from forebay_torch.object_index import Answer, ObjectIndex, views
from forebay_torch.policy import Counters, DatasetStats
from forebay_torch.prefetched_object import PrefetchedObject
from forebay_torch.prefetcher import Prefetcher, Wait
from forebay_torch.source import (
    PrefixMap,
    Sources,
    check_reading,
    parts_of,
    snapshot as list_parts,
)

__all__ = ["BaseMapDataset"]


class BaseMapDataset(CustomGetItem, AsyncItems, Dataset[Any], ABC):
    """A list of objects that a subclass turns into samples in ``__getitem__``.

    The objects are listed once, when the dataset is made; their order is that of the sources, and
    by name within a source. A DataLoader gets each of its batches by one batch request: what
    ``__getitem__`` reads through ``self.get_obj_list()[i]`` has been fetched with it by then.

    Args:
        ais_source_list: A Bucket, an ObjectGroup, a URI such as ``s3://bucket/prefix``, or a list
            of them. ``sources`` is another name for it.
        prefix_map: Source -> the prefixes to take of it. An object that two prefixes match
            appears once.
        client: For sources given as URIs; by default one from the environment.
        etl_name: A transform of the cluster: contents are what it makes of the objects. Each costs
            a request, 16 at a time, and ``objects`` still has the sizes of what is stored.
        snapshot: Read only what the objects are now: one that is written anew later is
            ``ObjectChanged``, never mixed bytes. Each object costs a request then, 16 at a time.
        allow_empty: Whether a source or prefix may match no object.

    Raises:
        ValueError: There is no source, a source or prefix matches nothing, or arguments contradict
            each other.
        TypeError: An argument stands in the place of another.
        NotFound: There is no such bucket or transform; the message names it.

    Example:
        >>> class Texts(BaseMapDataset):
        ...     def __getitem__(self, index):
        ...         return self.get_obj_list()[index].get().read_all().decode()
    """

    def __init__(
        self,
        ais_source_list: Sources | None = None,
        prefix_map: PrefixMap | None = None,
        *,
        sources: Sources | None = None,
        client: Client | None = None,
        config: Config | None = None,
        etl_name: str | None = None,
        snapshot: bool = False,
        allow_empty: bool = False,
    ) -> None:
        owner = type(self).__name__
        if ais_source_list is not None and sources is not None:
            raise TypeError(f"{owner} takes sources or ais_source_list, not both")
        check_reading(owner, etl_name, snapshot)
        self._config = config or Config()
        self._counters = Counters()
        self._ahead: tuple[Prefetcher, ...] = ()
        # Whether contents may come as bytes.
        self._as_bytes = False
        chosen = sources if ais_source_list is None else ais_source_list
        self._parts = parts_of(owner, chosen, prefix_map, client)
        self._index = list_parts(
            self._parts,
            self._config.max_listing_retries,
            owner=owner,
            allow_empty=allow_empty,
            config=self._config,
            pinned=snapshot,
            etl_name=etl_name,
        )

    @property
    def objects(self) -> Listing:
        """``(name, size)`` of every object, in the order of the samples."""
        return self._index.listing

    def get_obj_list(self) -> Sequence[Object]:
        """The objects, in the order of the samples; each is made when it is asked for."""
        return _ObjectList(self._index)

    def __len__(self) -> int:
        frameworks.share_random_order()
        return len(self._index.listing)

    @abstractmethod
    def __getitem__(self, index: Any) -> Any:
        """The sample at ``index``."""

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        """The samples of a batch, each as ``__getitem__`` returns it, from contents that were fetched
        together."""
        return self._each(indices)

    def rows_to_fetch(self, indices: Sequence[Any]) -> list[int]:
        """The rows that ``__getitem__`` will read for these indices; none where that is unknown: a
        subclass gives indices the meaning that it likes."""
        if self._config.batch_bytes == 0 or not self._reads_its_index:
            return []
        try:
            return self.rows(indices)
        except (IndexError, TypeError):
            return []

    def _data(self) -> object:
        return self._index

    def _answers(self, rows: Sequence[int]) -> dict[int, Answer]:
        """The contents of these rows, fetched together; in place of what cannot be had, why."""
        return dict(zip(rows, self._fetch(rows), strict=True))

    def fetch(self, indices: Sequence[SupportsIndex]) -> list[memoryview]:
        """The raw contents of these objects, in this order: one request per owning target.

        More than ``Config.max_composite_object_size`` bytes are asked for in several rounds.
        """
        return views(self._fetch(self.rows(indices)))

    def stats(self) -> DatasetStats:
        """Counters of the reads of batches so far, over this process and all its workers."""
        return self._counters.total()

    def start_prefetcher(
        self, batches: int, together: int = 1, limit: int | None = None
    ) -> Prefetcher:
        """Returns a prefetcher, which fetches batches of rows before this process requests them.

        ``prefetch_order`` and ThreadLoader use one. The caller closes it.
        """
        ahead = Prefetcher(self, batches, together, limit)
        self._ahead = (*self._ahead, ahead)
        return ahead

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ahead": ()}

    def forget(self, closed: Prefetcher) -> None:
        """Removes a prefetcher that was closed."""
        self._ahead = tuple(ahead for ahead in self._ahead if ahead is not closed)

    def _fetch(self, rows: Sequence[int]) -> Sequence[Answer]:
        """As ``fetch``; in place of what cannot be had, why."""
        return self._named(rows)[1]

    def _named(self, rows: Sequence[int]) -> tuple[Sequence[str], Sequence[Answer]]:
        """The names of these rows, and as ``fetch``; in place of what cannot be had, why."""
        for ahead in self._ahead:
            known = ahead.take(rows)
            if known is not None:
                return known
        names = self.names_of(rows)
        return names, self.fetch_now(rows, names)

    def names_of(self, rows: Sequence[int]) -> list[str]:
        """The names of these objects."""
        return self._index.listing.names_at(rows)

    def begin(self, rows: Sequence[int], names: Sequence[str]) -> Wait | None:
        """Starts fetching these rows, of these names, in the background; returns the function that waits
        for them. Returns None if the fetch would need a Python thread."""
        limit = self._config.batch_bytes
        if limit == 0 or self._index.is_special or self.bytes_of(rows) > limit:
            return None
        wait = self._index.submit_many(rows, names, as_bytes=self._as_bytes)

        def waited() -> Sequence[Answer]:
            started = time.perf_counter()
            return self._counted(wait(), 1, started)

        return waited

    def bytes_of(self, rows: Sequence[int]) -> int:
        """The bytes of these objects, as they were listed."""
        return sum(map(self._index.listing.sizes.__getitem__, rows))

    def fetch_now(
        self, rows: Sequence[int], names: Sequence[str] | None = None
    ) -> Sequence[Answer]:
        """The contents of these rows, fetched in the thread that calls; in place of what cannot be
        had, why."""
        started = time.perf_counter()
        if self.bytes_of(rows) <= self._config.batch_bytes:
            contents, rounds = self._index.try_many(rows, names, as_bytes=self._as_bytes), 1
        else:
            contents, rounds = self._fetch_in_rounds(rows)
        return self._counted(contents, rounds, started)

    def _counted(
        self, contents: Sequence[Answer], requests: int, started: float
    ) -> Sequence[Answer]:
        """The contents, which were fetched by so many requests since ``started``."""
        arrived = [len(c) for c in contents if not isinstance(c, ForebayError)]
        self._counters.add(
            objects=len(arrived),
            bytes=sum(arrived),
            requests=requests,
            fetch_s=time.perf_counter() - started,
        )
        return contents

    def _fetch_in_rounds(self, rows: Sequence[int]) -> tuple[list[Answer], int]:
        """As much at a time as the configuration allows; the answers, and in how many rounds."""
        sizes, limit = self._index.listing.sizes, self._config.batch_bytes
        contents: list[Answer] = []
        start, rounds = 0, 0
        while start < len(rows):
            end, total = start + 1, sizes[rows[start]]
            while end < len(rows) and total + sizes[rows[end]] <= limit:
                total += sizes[rows[end]]
                end += 1
            contents += self._index.try_many(rows[start:end], as_bytes=self._as_bytes)
            start, rounds = end, rounds + 1
        return contents, rounds

    def rows(self, indices: Iterable[SupportsIndex]) -> list[int]:
        """``row`` of each of them."""
        wanted: list[Any] = list(indices)
        length = min(len(self), len(self._index.listing))
        if set(map(type, wanted)) == {int} and min(wanted) >= 0 and max(wanted) < length:
            return wanted
        return list(map(self.row, wanted))

    def row(self, index: SupportsIndex) -> int:
        """``index`` as a number from 0 to ``len(self) - 1``.

        Args:
            index: An int, or an integer of numpy or torch; negative ones count from the end.
        """
        number = operator.index(index)
        row = number + len(self) if number < 0 else number
        if not 0 <= row < min(len(self), len(self._index.listing)):
            raise IndexError("index must be in bounds of dataset")
        return row


class _ObjectList(Sequence[Object]):
    """The objects of an index; those of the batch at work have their content with them."""

    __slots__ = ("_index",)

    def __init__(self, index: ObjectIndex) -> None:
        self._index = index

    def __len__(self) -> int:
        return len(self._index.listing)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Object: ...
    @overload
    def __getitem__(self, index: slice) -> list[Object]: ...
    def __getitem__(self, index: Any) -> Object | list[Object]:
        if isinstance(index, slice):
            return [self._object(row) for row in range(*index.indices(len(self)))]
        number = operator.index(index)
        row = number + len(self) if number < 0 else number
        if not 0 <= row < len(self):
            raise IndexError("index must be in bounds of dataset")
        return self._object(row)

    def __iter__(self) -> Iterator[Object]:
        return map(self._object, range(len(self)))

    def _object(self, row: int) -> Object:
        plain = self._index.object(row)
        answer = cached_content(self._index, row)
        return plain if answer is None else PrefetchedObject(plain, lambda: views([answer])[0])
