"""What a dataset reads: sources as users write them, made into one list of objects."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, TypeAlias, TypeVar

from forebay import (
    Bucket,
    Client,
    ClusterUnavailable,
    ForebayError,
    Listing,
    Object,
    ObjectGroup,
    ShardIndex,
    Timeout,
    TooManyRequests,
    archive_format,
)

__all__ = [
    "Source",
    "Sources",
    "PrefixMap",
    "ObjectIndex",
    "Part",
    "parts_of",
    "shard_snapshot",
    "snapshot",
]

Source: TypeAlias = Bucket | ObjectGroup | str
Sources: TypeAlias = Source | Sequence[Source]
PrefixMap: TypeAlias = Mapping[Any, str | Sequence[str] | None]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Part:
    """All names of a bucket, or of a group in it, that start with ``prefix``."""

    source: Bucket | ObjectGroup
    prefix: str = ""

    @property
    def bucket(self) -> Bucket:
        """Where the objects are."""
        return self.source if isinstance(self.source, Bucket) else self.source.bucket


class ObjectIndex:
    """All objects of a dataset by position: a compact listing, and the bucket of each row."""

    __slots__ = ("listing", "_buckets", "_ends")

    def __init__(self, parts: Sequence[tuple[Bucket, Listing]]) -> None:
        self.listing = Listing.concat([listing for _, listing in parts])
        self._buckets = tuple(bucket for bucket, _ in parts)
        self._ends = tuple(accumulate(len(listing) for _, listing in parts))
        endpoints = sorted({bucket.client.endpoint for bucket in self._buckets})
        if len(endpoints) > 1:
            raise ValueError(f"the sources of a dataset are in one cluster, not in {endpoints}")

    def bucket(self, index: int) -> Bucket:
        """The bucket of the object at ``index`` (not negative)."""
        return self._buckets[bisect_right(self._ends, index)]

    def object(self, index: int) -> Object:
        """The object at ``index`` (not negative)."""
        name, size = self.listing[index]
        return Object(self.bucket(index), name, size)

    def shard_indexes(
        self, indices: Sequence[int], concurrency: int = 16
    ) -> list[ShardIndex | ForebayError]:
        """What is in the shards at these positions, or why that cannot be said."""
        shards = [self.object(i) for i in indices]
        if not shards:
            return []
        return shards[0].bucket.client.shard_indexes(shards, concurrency=concurrency)

    def get_many(self, indices: Iterable[int]) -> list[memoryview]:
        """The contents of these objects, as one batch over all buckets."""
        wanted = [(self.bucket(i), self.listing.name(i)) for i in indices]
        return wanted[0][0].client.get_many(wanted) if wanted else []

    def stream(self, indices: Sequence[int]) -> Iterator[memoryview | ForebayError]:
        """As ``try_many``, each answer as soon as it and all before it have arrived."""
        batch = self.bucket(indices[0]).client.batch(map(self.object, indices), on_error="return")
        for result, content in batch.get():
            yield content if result.error is None else result.error

    def try_many(self, indices: Iterable[int]) -> list[memoryview | ForebayError]:
        """As ``get_many``; in place of what cannot be had, why."""
        wanted = [(self.bucket(i), self.listing.name(i)) for i in indices]
        return wanted[0][0].client.get_many(wanted, on_error="return") if wanted else []


def parts_of(
    owner: str,
    sources: Sources | None,
    prefix_map: PrefixMap | None = None,
    client: Client | None = None,
) -> tuple[Part, ...]:
    """The parts that make up a dataset.

    Args:
        owner: Name of the dataset's class, for messages.
        sources: What to read; a string is a URI such as ``s3://bucket/prefix`` or a template such
            as ``ais://bucket/shard-{000..099}.tar``.
        prefix_map: Source -> the prefixes to take of it; a source that is not in it, or is mapped
            to None, is read whole.
        client: For sources given as strings; by default one from the environment.
    """
    chosen: list[Source]
    if isinstance(sources, Bucket | ObjectGroup | str):
        chosen = [sources]
    else:
        chosen = list(sources or ())
    if not chosen or "" in chosen:
        raise ValueError(f"{owner} needs at least one source: a Bucket, an ObjectGroup or a URI")
    prefixes_of = dict(prefix_map or {})
    for key in prefixes_of:
        if key not in chosen:
            raise ValueError(f"{owner}: prefix_map has {key!r}, which is not among the sources")
    parts = []
    for source in chosen:
        prefixes = prefixes_of.get(source)
        if prefixes is None:
            prefixes = [""]
        elif isinstance(prefixes, str):
            prefixes = [prefixes]
        if isinstance(source, str):
            client = client or Client()
            bucket, path = client.bucket_of(source)
            if "{" in path:
                parts += [Part(bucket.objects(template=path), prefix) for prefix in prefixes]
            else:
                parts += [Part(bucket, path + prefix) for prefix in prefixes]
        elif isinstance(source, Bucket | ObjectGroup):
            parts += [Part(source, prefix) for prefix in prefixes]
        else:
            raise TypeError(
                f"{owner}: a source is a Bucket, an ObjectGroup or a URI, not {source!r}"
            )
    return tuple(parts)


def snapshot(
    parts: Sequence[Part],
    retries: int = 0,
    keep: Callable[[Part, str], bool] | None = None,
) -> ObjectIndex:
    """One listing of all parts; an object that several of them name appears once.

    Args:
        parts: What to list.
        retries: How often a listing is begun anew after a failure that may pass.
        keep: Which names of a part stay; by default all.
    """
    kept = _without_covered(parts)
    shared = {p.bucket for p in kept if sum(q.bucket == p.bucket for q in kept) > 1}
    seen: dict[Bucket, set[str]] = {bucket: set() for bucket in shared}
    listed = []
    for part in kept:
        listing = _retried(partial(part.source.list_snapshot, part.prefix), retries)
        if keep is not None:
            listing = Listing.from_pairs(row for row in listing if keep(part, row[0]))
        if part.bucket in seen:
            listing = Listing.from_pairs(_new(listing, seen[part.bucket]))
        listed.append((part.bucket, listing))
    if not listed:
        raise ValueError("prefix_map leaves nothing of any source; None stands for all of one")
    return ObjectIndex(listed)


def shard_snapshot(owner: str, parts: Sequence[Part], retries: int = 0) -> ObjectIndex:
    """As ``snapshot``, of the shards alone: of a bucket what is named like an archive, of a group
    all that it names."""

    def is_shard(part: Part, name: str) -> bool:
        return isinstance(part.source, ObjectGroup) or archive_format(name) is not None

    index = snapshot(parts, retries, is_shard)
    if not len(index.listing):
        raise ValueError(
            f"{owner} found no shards: no object there is named like an archive "
            "(.tar, .tgz, .tar.gz, .tar.lz4, .tar.zst, .zip)"
        )
    return index


def _without_covered(parts: Sequence[Part]) -> list[Part]:
    """The parts less those that another one of the same source contains as a whole."""
    unique = list(dict.fromkeys(parts))
    return [
        part
        for part in unique
        if not any(
            part.source == other.source and part != other and part.prefix.startswith(other.prefix)
            for other in unique
        )
    ]


def _new(listing: Listing, seen: set[str]) -> Iterator[tuple[str, int]]:
    for name, size in listing:
        if name not in seen:
            seen.add(name)
            yield name, size


def _retried(listing: Callable[[], T], retries: int) -> T:
    """The listing, begun anew so many times after failures that may pass."""
    while True:
        try:
            return listing()
        except (ClusterUnavailable, Timeout, TooManyRequests):
            if retries == 0:
                raise
            retries -= 1
