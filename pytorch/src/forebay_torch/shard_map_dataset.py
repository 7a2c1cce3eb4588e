"""Any sample of many shards by its number."""

from __future__ import annotations

import operator
import warnings
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Literal, SupportsIndex, TypeAlias

from torch.utils.data import Dataset

from forebay import (
    Batch,
    Client,
    ForebayError,
    InvalidArgument,
    Listing,
    Object,
    ObjectChanged,
    ShardIndex,
    split_member,
)
from forebay_torch import frameworks
from forebay_torch.config import Config
from forebay_torch.custom_getitem import CustomGetItem, cached_content, decides_by_item
from forebay_torch.fields import Fields
from forebay_torch.object_index import ObjectIndex
from forebay_torch.shard_options import Decode, check_options, decoded
from forebay_torch.source import PrefixMap, Sources, parts_of, shard_snapshot

__all__ = ["ShardMapDataset"]


# Key, parts by extension, and shard of a sample.
_Content: TypeAlias = tuple[str, dict[str, Any], str]


class ShardMapDataset(CustomGetItem, Dataset[Any]):
    """Samples of shards as ``(key, {extension: bytes})``, each by its number.

    The cluster indexes the shards when the dataset is made; after that a sample costs the bytes of
    its members and nothing of the rest of its shard. A batch is one request per owning target,
    however many shards it comes from, so that samples may be shuffled over all of them. The order
    is that of ShardReader: shards by name, samples in their shard's order. Here the members of a
    sample may lie apart.

    Members of compressed TARs can only be had by unpacking what lies before them; keep shards for
    random access as plain .tar or .zip.

    Args:
        bucket_list: As for ShardReader, with ``prefix_map``.
        decode: As for ShardReader, with ``keys``, ``lowercase`` and ``fill_missing``.
        on_error: ``skip`` leaves out, with a warning, shards that cannot be indexed and samples
            that cannot be distinguished, when the dataset is made. Reading a sample always raises.
        concurrency: How many shards are indexed at a time.
        client: For sources given as URIs; by default one from the environment.
        config: Its ``max_composite_object_size`` bounds one request.
        allow_empty: Whether a source or prefix may have no shard.

    Example:
        >>> dataset = ShardMapDataset(bucket, decode={"cls": int})
        >>> loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=4)
    """

    def __init__(
        self,
        bucket_list: Sources | None = None,
        prefix_map: PrefixMap | None = None,
        *,
        sources: Sources | None = None,
        decode: Decode | None = None,
        keys: Literal["webdataset", "basename"] = "webdataset",
        lowercase: bool = False,
        fill_missing: Any = b"",
        on_error: Literal["raise", "skip"] = "raise",
        concurrency: int = 16,
        client: Client | None = None,
        config: Config | None = None,
        allow_empty: bool = False,
    ) -> None:
        owner = type(self).__name__
        check_options(owner, keys, on_error)
        if callable(on_error):
            raise ValueError(f'{owner}: on_error is "raise" or "skip": samples have their numbers')
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, not {concurrency}")
        if bucket_list is not None and sources is not None:
            raise TypeError(f"{owner} takes sources or bucket_list, not both")
        self._config = config or Config()
        self._decode = decode
        self._keys: Literal["webdataset", "basename"] = keys
        self._lowercase = lowercase
        self._fill = fill_missing
        parts = parts_of(owner, sources if bucket_list is None else bucket_list, prefix_map, client)
        retries = self._config.max_listing_retries
        self._shards = shard_snapshot(
            owner, parts, retries, config=self._config, allow_empty=allow_empty
        )
        self._table = _Table(self._shards, keys, lowercase, on_error == "skip", concurrency)
        self._objects: Listing | None = None

    @property
    def shards(self) -> Listing:
        """``(name, size)`` of every shard."""
        return self._shards.listing

    @property
    def objects(self) -> Listing:
        """``(key, bytes)`` of every sample, for samplers that go by size."""
        if self._objects is None:
            table = self._table
            self._objects = Listing.from_pairs(
                (self._key(row), sum(table.sizes(row))) for row in range(len(self))
            )
        return self._objects

    def __len__(self) -> int:
        frameworks.share_random_order()
        return len(self._table.ends)

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        """The sample at ``index``, negative ones count from the end; of a slice, a list."""
        if isinstance(index, slice):
            return self._samples([self._row(row) for row in range(*index.indices(len(self)))])
        row = self._row(index)
        content = cached_content(self._table, row)
        key, parts, uri = self._fetch([row])[0] if content is None else content
        return self._sample(key, parts, uri)

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        """The samples of a batch, from members that were fetched together."""
        if decides_by_item(type(self), ShardMapDataset):
            return self._each(indices)
        return self._samples([self._row(index) for index in indices])

    def rows_to_fetch(self, indices: Sequence[Any]) -> list[int]:
        """The samples that ``__getitem__`` will read for these indices, where that is known."""
        if not self._reads_its_index:
            return []
        try:
            return [self._row(index) for index in indices]
        except (IndexError, TypeError):
            return []

    def _data(self) -> object:
        return self._table

    def _answers(self, rows: Sequence[int]) -> dict[int, _Content]:
        return dict(zip(rows, self._contents(rows), strict=True))

    def _samples(self, rows: Sequence[int]) -> list[tuple[str, Any]]:
        """The samples at these rows."""
        return [self._sample(key, parts, uri) for key, parts, uri in self._contents(rows)]

    def _sample(self, key: str, parts: dict[str, Any], uri: str) -> tuple[str, Any]:
        """The sample that these parts make."""
        return key, decoded(key, Fields(parts, self._fill, key, uri), self._decode)

    def _contents(self, rows: Sequence[int]) -> list[_Content]:
        """Fetches the contents of these samples, by as few requests as the configuration allows."""
        limit = self._config.batch_bytes
        samples: list[_Content] = []
        start = 0
        while start < len(rows):
            end, total = start + 1, sum(self._table.sizes(rows[start]))
            while end < len(rows) and (more := total + sum(self._table.sizes(rows[end]))) <= limit:
                end, total = end + 1, more
            samples += self._fetch(rows[start:end])
            start = end
        return samples

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_objects": None}

    def _row(self, index: SupportsIndex) -> int:
        number = operator.index(index)
        row = number + len(self) if number < 0 else number
        if not 0 <= row < min(len(self), len(self._table.ends)):
            raise IndexError("index must be in bounds of dataset")
        return row

    def _key(self, row: int) -> str:
        name = self._table.members.name(self._table.order[self._table.span(row).start])
        return (split_member(name, self._keys, self._lowercase) or (name, ""))[0]

    def _fetch(self, rows: Sequence[int]) -> list[_Content]:
        """These samples by one batch."""
        table, members, sizes = self._table, self._table.members, self._table.members.sizes
        # Number of a shard -> the shard with its URI, for each is asked for many samples.
        shards: dict[int, tuple[Object, str]] = {}
        batch: Batch | None = None
        asked: list[tuple[str, list[tuple[str, int]]]] = []
        for row in rows:
            number = table.shard(row)
            if number not in shards:
                shards[number] = (found := self._shards.object(number)), found.uri
            shard, uri = shards[number]
            batch = shard.bucket.client.batch() if batch is None else batch
            of_sample = []
            for place in table.span(row):
                member = table.order[place]
                name = members.name(member)
                batch.add(shard, archpath=name)
                of_sample.append((name, sizes[member]))
            asked.append((uri, of_sample))
        answers = iter(batch.get_all() if batch is not None else ())
        samples: list[_Content] = []
        for uri, of_sample in asked:
            parts: dict[str, Any] = {}
            key = ""
            for name, size in of_sample:
                _, content = next(answers)
                if len(content) != size:
                    raise ObjectChanged(
                        f"{uri}: {name!r} has {len(content)} bytes, its index said {size}: "
                        "the shard changed; make the dataset anew"
                    )
                key, extension = split_member(name, self._keys, self._lowercase) or (name, "")
                parts[extension] = bytes(content)
            samples.append((key, parts, uri))
        return samples


class _Table:
    """Which members make which sample, over all shards, in flat buffers: forked workers share
    them, and they pickle as they are."""

    __slots__ = ("members", "order", "ends", "shard_ends")

    def __init__(
        self,
        shards: ObjectIndex,
        keys: Literal["webdataset", "basename"],
        lowercase: bool,
        skip: bool,
        concurrency: int,
    ) -> None:
        # Numbers of members, sample after sample; where samples end in it, shards in those.
        self.order, self.ends, self.shard_ends = array("Q"), array("Q"), array("Q")
        names: list[Listing] = []
        before = 0
        total = len(shards.listing)
        for start in range(0, total, 4 * concurrency):
            group = range(start, min(total, start + 4 * concurrency))
            for row, index in zip(group, shards.shard_indexes(group, concurrency), strict=True):
                if isinstance(index, ForebayError):
                    _give_up(index, shards.object(row).uri, skip)
                else:
                    names.append(index.names)
                    self._take(index, before, keys, lowercase, skip)
                    before += len(index)
                self.shard_ends.append(len(self.ends))
        self.members = Listing.concat(names) if names else Listing.from_pairs(())

    def span(self, row: int) -> range:
        """Returns the positions in ``order`` of the members of a sample."""
        return range(self.ends[row - 1] if row else 0, self.ends[row])

    def sizes(self, row: int) -> list[int]:
        """Bytes of each member of a sample."""
        return [self.members.sizes[self.order[place]] for place in self.span(row)]

    def shard(self, row: int) -> int:
        """The number of the shard that a sample is in."""
        return bisect_right(self.shard_ends, row)

    def _take(
        self,
        index: ShardIndex,
        before: int,
        keys: Literal["webdataset", "basename"],
        lowercase: bool,
        skip: bool,
    ) -> None:
        samples = index.samples(keys, lowercase)
        if not samples.problems:
            base = len(self.order)
            self.order.extend(before + number for number in samples.order)
            self.ends.extend(base + end for end in samples.ends)
            return
        start = 0
        for row, end in enumerate(samples.ends):
            if row in samples.problems:
                error = InvalidArgument(f"{index.uri}: {samples.problems[row]}")
                _give_up(error, index.uri, skip)
            else:
                self.order.extend(before + number for number in samples.order[start:end])
                self.ends.append(len(self.order))
            start = end

    def __getstate__(self) -> tuple[Any, ...]:
        return self.members, self.order, self.ends, self.shard_ends

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.members, self.order, self.ends, self.shard_ends = state


def _give_up(error: ForebayError, name: str, skip: bool) -> None:
    if not skip:
        raise error
    warnings.warn(f"left out of {name}: {error}", stacklevel=5)
