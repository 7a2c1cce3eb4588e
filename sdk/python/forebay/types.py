"""Plain values that calls take and return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from forebay.errors import ForebayError

__all__ = [
    "ArchiveConfig",
    "ObjectEntry",
    "ObjectProps",
    "ObjectRange",
    "BatchResult",
    "JobStatus",
]


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
