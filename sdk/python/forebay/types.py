"""Plain values that calls take and return."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from forebay.errors import ForebayError
from forebay.notices import format_size

__all__ = [
    "ArchiveConfig",
    "BucketWarmth",
    "ObjectEntry",
    "ObjectProps",
    "ObjectRange",
    "BatchResult",
    "JobStatus",
    "PrefetchPlan",
    "ReadWindow",
]

_GB = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """One row of a listing.

    Attributes:
        present: Whether the bytes are in the cluster now; otherwise only the backend has them.
        is_folder: Whether this is no object but the common beginning of some, up to a ``/``.
    """

    name: str
    size: int
    present: bool = True
    is_folder: bool = False


@dataclass(frozen=True, slots=True)
class ObjectProps:
    """The properties of an object beside its bytes.

    Attributes:
        mtime: When it was last modified, in seconds since 1970; 0 if it is unknown.
    """

    name: str
    size: int
    version: str = ""
    etag: str = ""
    checksum_kind: str = "none"
    checksum: str = ""
    custom: Mapping[str, str] = field(default_factory=dict)
    present: bool = True
    mtime: float = 0.0

    @classmethod
    def from_meta(cls, name: str, meta: Mapping[str, Any]) -> ObjectProps:
        """From the JSON form that nodes use."""
        checksum = meta.get("checksum") or {}
        return cls(
            name=name,
            size=int(meta["size"]),
            version=meta.get("version", ""),
            etag=meta.get("etag", ""),
            checksum_kind=checksum.get("kind", "none"),
            checksum=checksum.get("value", ""),
            custom=dict(meta.get("custom", {})),
            present=bool(meta.get("present", False)),
            mtime=int(meta.get("mtime_ns", 0)) / 1e9,
        )


@dataclass(frozen=True, slots=True)
class ObjectRange:
    """Numbered names: ``prefix``, a number padded with zeros to ``pad_width``, ``suffix``."""

    prefix: str
    min_index: int
    max_index: int
    pad_width: int = 0
    step: int = 1
    suffix: str = ""

    def names(self) -> list[str]:
        """All names, first to last; ``max_index`` is included."""
        if self.min_index < 0 or self.step < 1 or self.max_index < self.min_index:
            raise ValueError(f"{self} is empty; needs 0 <= min_index <= max_index and step >= 1")
        return [
            f"{self.prefix}{number:0{self.pad_width}d}{self.suffix}"
            for number in range(self.min_index, self.max_index + 1, self.step)
        ]


@dataclass(frozen=True, slots=True)
class ArchiveConfig:
    """The part to read of an object that is a shard.

    Attributes:
        archpath: Name of the member.
        mime: The shard's format, such as ``tar.gz``; needed only if neither its name nor its
            first bytes identify it.
    """

    archpath: str
    mime: str | None = None

    def __post_init__(self) -> None:
        if not self.archpath:
            raise ValueError("archpath is the name of a member; it must not be empty")


@dataclass(frozen=True, slots=True)
class ReadWindow:
    """Reads of a bucket within a window of time that ends now.

    Attributes:
        seconds: Length of the window; shorter than an hour or a day if a target started within it.
            0 if there were no reads.
        hit_objects: Objects served from the cache.
        miss_objects: Objects fetched from the backend for this read.
        coalesced_objects: Objects served from a fetch that another read had started.
    """

    seconds: int
    hit_objects: int
    hit_bytes: int
    miss_objects: int
    miss_bytes: int
    coalesced_objects: int
    coalesced_bytes: int

    @property
    def hit_rate(self) -> float | None:
        """Share of the objects that needed no download of their own; None without reads."""
        served = self.hit_objects + self.coalesced_objects
        every = served + self.miss_objects
        return served / every if every else None

    @classmethod
    def from_json(cls, window: Mapping[str, Any]) -> ReadWindow:
        """From the JSON form that nodes use."""
        return cls(**{name: int(window.get(name, 0)) for name in cls.__slots__})


@dataclass(frozen=True, slots=True)
class BucketWarmth:
    """How much of a bucket is cached, and what its readers got from the cache.

    The targets count copies and reads as these change, so that no listing is made for this.

    Attributes:
        backed: Whether the bucket has a backend; otherwise all its objects are in the cluster.
        pinned: Whether copies are kept from eviction (``cache.pin``).
        exact: Whether ``objects`` and ``bytes`` are exact. They are not while a target does not reply
            or native objects move, nor in a bucket with erasure coding.
        objects: Objects that are stored whole.
        bytes: Bytes of these objects.
        partial_objects: Objects of which only some ranges are cached.
        partial_bytes: Bytes of these ranges.
        no_access_before: No whole copy was stored or last read before this time, in seconds since
            1970; None if it is unknown.
        hour: Reads of the last hour.
        day: Reads of the last day.
        egress_saved_hour_bytes: Bytes that a cloud would have billed in the last hour without the
            cache.
        egress_saved_day_bytes: The same for the last day.
        listed_objects: Objects in the last complete listing that the cluster made of the backend;
            None if it made none since it started.
        listed_bytes: Their bytes.
        listed_at: When that listing began, in seconds since 1970.
        object_share: Cached whole objects as a share of ``listed_objects``, from 0 to 1.
        byte_share: Cached bytes, whole and in part, as a share of ``listed_bytes``.
        targets: Number of targets in the sums.
        away: Ids of the targets that are missing in the sums, because they did not reply.
    """

    backed: bool
    pinned: bool
    exact: bool
    objects: int
    bytes: int
    partial_objects: int
    partial_bytes: int
    no_access_before: float | None
    hour: ReadWindow
    day: ReadWindow
    egress_saved_hour_bytes: int
    egress_saved_day_bytes: int
    listed_objects: int | None
    listed_bytes: int | None
    listed_at: float | None
    object_share: float | None
    byte_share: float | None
    targets: int
    away: tuple[str, ...]

    @classmethod
    def from_reply(cls, reply: Mapping[str, Any]) -> BucketWarmth:
        """From the JSON form that gateways use, of one bucket."""
        warmth = reply["buckets"][0]
        listing = warmth.get("listing") or {}
        whole, cached = int(warmth["objects"]), int(warmth["bytes"])
        partial = int(warmth["partial_bytes"])
        taken, oldest = listing.get("taken_ns"), int(warmth["no_access_before_ns"])
        return cls(
            backed=bool(warmth["backed"]),
            pinned=bool(warmth["pinned"]),
            exact=bool(warmth.get("exact", False)),
            objects=whole,
            bytes=cached,
            partial_objects=int(warmth["partial_objects"]),
            partial_bytes=partial,
            no_access_before=oldest / 1e9 if oldest else None,
            hour=ReadWindow.from_json(warmth["hour"]),
            day=ReadWindow.from_json(warmth["day"]),
            egress_saved_hour_bytes=int(warmth["egress_saved_hour_bytes"]),
            egress_saved_day_bytes=int(warmth["egress_saved_day_bytes"]),
            listed_objects=listing.get("objects"),
            listed_bytes=listing.get("bytes"),
            listed_at=None if taken is None else taken / 1e9,
            object_share=_share(whole, listing.get("objects")),
            byte_share=_share(cached + partial, listing.get("bytes")),
            targets=int(reply["targets"]),
            away=tuple(reply["away"]),
        )


def _share(part: int, whole: int | None) -> float | None:
    return min(part / whole, 1.0) if whole else None


@dataclass(frozen=True, slots=True)
class PrefetchPlan:
    """The objects that a prefetch fetches, and the requests that it sends to the backend.

    Attributes:
        objects: Objects that match.
        bytes: Bytes of these objects.
        cached_objects: Objects of them that are cached whole.
        cached_bytes: Bytes of these.
        fetch_objects: Objects that are not cached, or only in part.
        fetch_bytes: Bytes of these. Parts that are cached already are included.
        requests: GETs of the objects to fetch and, for a prefix, pages of 1,000 listed names. A
            large object has a GET for each range.
    """

    objects: int
    bytes: int
    cached_objects: int
    cached_bytes: int
    fetch_objects: int
    fetch_bytes: int
    requests: int

    @classmethod
    def from_json(cls, plan: Mapping[str, Any]) -> PrefetchPlan:
        """From the JSON form of the native core."""
        return cls(**{name: int(plan[name]) for name in cls.__slots__})

    def cost(self, price_per_gb: float) -> float:
        """The price of ``fetch_bytes`` as egress, in the currency of the price.

        Args:
            price_per_gb: Price of 10^9 bytes; of Amazon S3 to the internet, for example, 0.09.

        Raises:
            ValueError: The price is negative or no finite number.
        """
        if not 0 <= price_per_gb < math.inf:
            raise ValueError(f"price_per_gb must be a finite number from 0, not {price_per_gb}")
        return self.fetch_bytes / _GB * price_per_gb

    def __str__(self) -> str:
        return (
            f"{self.objects} objects, {format_size(self.bytes)}: "
            f"{self.cached_objects} cached, {format_size(self.cached_bytes)}; "
            f"{self.fetch_objects} to fetch, {format_size(self.fetch_bytes)}, "
            f"by {self.requests} requests"
        )


class BatchResult(NamedTuple):
    """Which entry of a batch a payload belongs to, and how it went.

    Attributes:
        index: Position in the batch.
        error: Why there is no payload; None when there is one.
        archpath: The member of the shard ``obj_name`` that the payload is; None for the object.
        opaque: The value that was given to ``Batch.add``.
    """

    index: int  # type: ignore[assignment]  # not the method of a tuple
    bucket: str
    obj_name: str
    size: int
    error: ForebayError | None = None
    archpath: str | None = None
    opaque: bytes | None = None

    @property
    def ok(self) -> bool:
        """Whether the payload is all that was asked for."""
        return self.error is None


@dataclass(frozen=True, slots=True)
class JobStatus:
    """How far a job is, over all targets.

    Attributes:
        state: ``running``, ``done``, ``failed`` or ``stopped``.
        objects: Objects done.
        bytes: Bytes moved or freed.
        present: Objects that needed nothing, as they were in the cluster already.
        total_objects: How many there are to do; 0 while that is not known.
        total_bytes: The same in bytes.
        messages: The first few failures, in words.
    """

    id: str
    kind: str
    bucket: str
    state: str
    objects: int
    bytes: int
    errors: int
    messages: tuple[str, ...] = ()
    present: int = 0
    total_objects: int = 0
    total_bytes: int = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen."""
        return self.state != "running"
