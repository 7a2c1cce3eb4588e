"""Readers of ``s3torchconnector``: an object as a seekable file, read at once or by ranges."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from forebay import Object, ObjectProps, RangeReader, Reader

__all__ = ["S3Reader", "S3ReaderConstructor"]

_BUFFER_BYTES = 8 << 20
_MAX_GAP_BYTES = 32 << 20


class S3Reader(io.BufferedReader):
    """The content of an object as a seekable binary file.

    Attributes:
        bucket: Name of the bucket.
        key: Name of the object.
    """

    bucket: str
    key: str

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # A worker that returns a reader hands its content over.
        position = self.tell()
        self.seek(0)
        content = self.read()
        self.seek(position)
        return _reopened, (self.bucket, self.key, content, position)


class RangeS3Reader(RangeReader, S3Reader):
    """Fetches what is read."""

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        function, (item, *others) = RangeReader.__reduce_ex__(self, protocol)
        return _reopened_ranged, (item, *others)


ReaderConstructor = Callable[[Object], S3Reader]


class S3ReaderConstructor:
    """The ways to read an object."""

    @staticmethod
    def sequential() -> ReaderConstructor:
        """All of it at once; a DataLoader's batch is one request per owning target."""
        return sequential

    @staticmethod
    def range_based(buffer_size: int | None = None) -> ReaderConstructor:
        """Only what is read, at most ``buffer_size`` bytes at a time; by default 8 MiB."""
        return _RangeBased(_BUFFER_BYTES if buffer_size is None else buffer_size)

    @staticmethod
    def dcp_optimized(max_gap_size: float = _MAX_GAP_BYTES) -> ReaderConstructor:
        """For distributed checkpoints. ``forebay_torch.dcp.StorageReader`` fetches the ranges of a plan
        with every reader, those near each other by one request; any other file is read as by
        ``range_based``.

        Args:
            max_gap_size: Accepted for compatibility: how much between two ranges may be read with
                them is 8 % of the bytes of the plan.

        Raises:
            ValueError: ``max_gap_size`` is negative.
        """
        if not max_gap_size >= 0:
            raise ValueError(f"max_gap_size must not be negative: {max_gap_size}")
        return _RangeBased(_BUFFER_BYTES)

    @staticmethod
    def default() -> ReaderConstructor:
        """``sequential``."""
        return sequential


class _WholeObject(io.RawIOBase):
    """An object read at once, when it is first needed."""

    def __init__(self, reader: Reader) -> None:
        super().__init__()
        self._reader = reader

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._reader.seek(offset, whence)

    def tell(self) -> int:
        return self._reader.tell()

    def readinto(self, buffer: Any, /) -> int:
        return self._reader.readinto(buffer)

    def readall(self) -> bytes:
        return self._reader.read()


def sequential(item: Object) -> S3Reader:
    # Nothing is buffered twice: what there is to read is in memory.
    return with_names(S3Reader(_WholeObject(item.get()), 4096), item)


def with_names(reader: S3Reader, item: Object) -> S3Reader:
    reader.bucket, reader.key = item.bucket.name, item.name
    return reader


@dataclass(frozen=True, slots=True)
class _RangeBased:
    """As a class, because a dataset pickles with it."""

    buffer_size: int

    def __call__(self, item: Object) -> S3Reader:
        return with_names(RangeS3Reader(item, window=max(self.buffer_size, 1)), item)


def _reopened(bucket: str, key: str, content: bytes, position: int) -> S3Reader:
    reader = S3Reader(io.BytesIO(content))
    reader.bucket, reader.key = bucket, key
    reader.seek(position)
    return reader


def _reopened_ranged(
    item: Object,
    window: int,
    num_workers: int,
    props: ObjectProps | None,
    ranges: Sequence[tuple[int, int]] | None,
    position: int,
) -> S3Reader:
    reader = RangeS3Reader(item, window=window, num_workers=num_workers, props=props, ranges=ranges)
    reader.seek(position)
    return with_names(reader, item)
