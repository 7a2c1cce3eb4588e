"""Several streams of shards side by side: the n-th member of each makes the n-th sample."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

from torch.utils.data import IterableDataset as TorchIterableDataset

from forebay import Bucket, ForebayError, InvalidArgument, Listing, Object
from forebay_torch import dist, frameworks
from forebay_torch.aio import AsyncSamples
from forebay_torch.cursor import Cursor
from forebay_torch.dataset_pass import Pass
from forebay_torch.in_memory_shard import members_of
from forebay_torch.object_index import ObjectIndex
from forebay_torch.order import EqualLength, Fingerprint
from forebay_torch.resumable import Resumable
from forebay_torch.saved_listing import refuse_listed
from forebay_torch.source import Part, shard_snapshot

__all__ = ["DataShard", "MultiShardStream"]

# Samples are fetched this many at a time, or fewer when they are large.
_GROUP_SAMPLES = 64
_GROUP_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class DataShard:
    """One of the streams: the members of all shards of a bucket whose names start so.

    Attributes:
        etl_name: A transform of the cluster for the shards, which has to leave the names of their
            members. A transformed shard is held as a whole while its members are read.
    """

    bucket: Bucket
    prefix: str = ""
    etl_name: str | None = None


class MultiShardStream(Resumable, AsyncSamples, TorchIterableDataset[tuple[bytes, ...]]):
    """Tuples of one member of each stream, in the order of shards' names and of the archives.

    The cluster indexes the shards when the dataset is made, so that ``len()`` costs nothing, and
    each worker of each rank fetches only its own tuples, in batches.

    Args:
        data_sources: The streams.
        strict: Refuse streams of different lengths; otherwise the shortest ends all.
        shard_by_rank: Whether ranks of ``torch.distributed`` share the samples.
        rank: Which rank this is; by default asked of ``torch.distributed``.
        world_size: How many there are; goes with ``rank``.
        equal_length: As for BaseIterDataset, with ``batch_size``.
        allow_empty: Whether a stream may have no shard.

    Example:
        >>> images, texts = DataShard(bucket, "images-"), DataShard(bucket, "texts-")
        >>> for image, text in MultiShardStream([images, texts], strict=True):
        ...     pass
    """

    def __init__(
        self,
        data_sources: Sequence[DataShard],
        *,
        strict: bool = False,
        shard_by_rank: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
        equal_length: EqualLength = "none",
        batch_size: int = 1,
        allow_empty: bool = False,
    ) -> None:
        if not data_sources:
            raise ValueError("MultiShardStream needs at least one DataShard")
        self._streams = [_Stream(source, allow_empty) for source in data_sources]
        lengths = [len(stream) for stream in self._streams]
        if strict and len(set(lengths)) > 1:
            raise ValueError(f"MultiShardStream: the streams have {lengths} members; not the same")
        self._length = min(lengths)
        self._shard_by_rank = shard_by_rank
        self._rank = dist.checked_rank("MultiShardStream", rank, world_size)
        self._cursor = Cursor("MultiShardStream", 0, batch_size, equal_length)
        self._prints = Fingerprint()

    def __len__(self) -> int:
        return self._cursor.length(self._length, self._ranks())

    def __iter__(self) -> Iterator[tuple[bytes, ...]]:
        return frameworks.checked("MultiShardStream", self._samples(self._cursor.open()))

    def _samples(self, made: Pass) -> Iterator[tuple[bytes, ...]]:
        mine = self._cursor.share(made, self._length, self._ranks())
        group: list[int] = []
        total = 0
        for row in mine:
            size = sum(stream.members.sizes[row] for stream in self._streams)
            if group and (len(group) >= _GROUP_SAMPLES or total + size > _GROUP_BYTES):
                yield from self._fetch(made, group)
                group, total = [], 0
            group.append(row)
            total += size
        if group:
            yield from self._fetch(made, group)

    def state_dict(self, num_samples: int | None = None) -> dict[str, Any]:
        """As that of IterableDataset."""
        return self._cursor.state(
            num_samples, self._length, self._ranks()[1], self._fingerprint()
        )

    def load_state_dict(
        self, state: Mapping[str, Any], *, data: Literal["same", "listed"] = "same"
    ) -> None:
        """As that of IterableDataset. ``data="listed"`` takes no streams that grew: a shard that came
        would move the members of all others."""
        fingerprint = self._fingerprint()
        refuse_listed("MultiShardStream", data, state, self._length, fingerprint)
        self._cursor.load(state, self._length, self._ranks()[1], fingerprint)

    def _fingerprint(self) -> str:
        members = self._streams[0].members
        return self._prints.of(members, [len(stream) for stream in self._streams])

    def _fetch(self, made: Pass, rows: Sequence[int]) -> Iterator[tuple[bytes, ...]]:
        batch = self._streams[0].bucket.client.batch()
        for row in rows:
            for stream in self._streams:
                if not stream.etl_name:
                    batch.add(stream.shard(row), archpath=stream.members.name(row))
        contents = iter(batch.get_all())
        for row in rows:
            made.deliver()
            yield tuple(
                stream.transformed(row) if stream.etl_name else bytes(next(contents)[1])
                for stream in self._streams
            )

    def _ranks(self) -> tuple[int, int]:
        return dist.ranks("MultiShardStream", self._rank) if self._shard_by_rank else (0, 1)


class _Stream:
    """The members of all shards of one source, in order."""

    def __init__(self, source: DataShard, allow_empty: bool) -> None:
        self.bucket = source.bucket
        self.etl_name = source.etl_name or ""
        self._shards: ObjectIndex = shard_snapshot(
            "MultiShardStream",
            [Part(source.bucket, source.prefix)],
            etl_name=self.etl_name,
            allow_empty=allow_empty,
        )
        # The transformed shard at hand, and its members.
        self._cached_shard: tuple[int, dict[str, bytes]] = (-1, {})
        names: list[Listing] = []
        for index in self._shards.shard_indexes(range(len(self._shards.listing))):
            if isinstance(index, ForebayError):
                raise index
            names.append(index.names)
        self._ends = tuple(accumulate(len(listing) for listing in names))
        self.members = Listing.concat(names) if names else Listing.from_pairs(())

    def __len__(self) -> int:
        return len(self.members)

    def shard(self, row: int) -> Object:
        """The shard that the member is in."""
        return self._shards.object(bisect_right(self._ends, row))

    def transformed(self, row: int) -> bytes:
        """The member at ``row``, of what the transform makes of its shard."""
        number = bisect_right(self._ends, row)
        if self._cached_shard[0] != number:
            uri = self._shards.object(number).uri
            content = self._shards.get_many([number])[0]
            self._cached_shard = (number, dict(members_of(uri, content)))
        name = self.members.name(row)
        if name not in self._cached_shard[1]:
            raise InvalidArgument(
                f"{self._shards.object(number).uri}: {self.etl_name!r} left out the member {name!r}"
            )
        return self._cached_shard[1][name]
