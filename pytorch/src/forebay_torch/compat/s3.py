"""The names of ``s3torchconnector``.

    from forebay_torch.compat.s3 import S3MapDataset

The cluster reads the buckets, with the region, endpoint and credentials that it has for them; what is
said of those here is accepted and not used.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from torch.utils.data import Dataset
from torch.utils.data import IterableDataset as TorchIterableDataset

from forebay import (
    Client,
    ForebayError,
    Object,
    ObjectProps,
    RangeReader,
    Reader,
    Retry,
    Writer,
)
from forebay_torch import frameworks, dist
from forebay_torch.checkpoint.checkpoint import Checkpoint
from forebay_torch.iter_dataset import BaseIterDataset
from forebay_torch.map_dataset import BaseMapDataset
from forebay_torch.custom_getitem import decides_by_item
from forebay_torch.policy import stopped

__all__ = [
    "S3Checkpoint",
    "S3ClientConfig",
    "S3Exception",
    "S3IterableDataset",
    "S3MapDataset",
    "S3Reader",
    "S3ReaderConstructor",
    "S3Writer",
]

S3Exception = ForebayError

_BUFFER_BYTES = 8 << 20
_MAX_GAP_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class S3ClientConfig:
    """How the bucket is read.

    ``max_attempts`` goes with the requests: targets try the cloud so often. ``part_size`` is that of
    checkpoints, from 1 byte on. The rest is kept for compatibility: how the cluster speaks to a bucket
    is the bucket's setting.
    """

    throughput_target_gbps: float = 10.0
    part_size: int = 8 << 20
    unsigned: bool = False
    force_path_style: bool = False
    max_attempts: int = 10
    profile: str | None = None
    requester_pays: bool = False


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


class _Ranged(RangeReader, S3Reader):
    """Fetches what is read."""

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        function, (item, *others) = RangeReader.__reduce_ex__(self, protocol)
        return _reopened_ranged, (item, *others)


class S3Writer(Writer):
    """A file that becomes an object, as a whole, when it is closed.

    Leaving its ``with`` block by an exception stores nothing.
    """

    def writable(self) -> bool:
        """Whether it is open."""
        return not self.closed


_Constructor = Callable[[Object], S3Reader]


class S3ReaderConstructor:
    """The ways to read an object."""

    @staticmethod
    def sequential() -> _Constructor:
        """All of it at once; a DataLoader's batch is one request per owning target."""
        return _sequential

    @staticmethod
    def range_based(buffer_size: int | None = None) -> _Constructor:
        """Only what is read, at most ``buffer_size`` bytes at a time; by default 8 MiB."""
        return _RangeBased(_BUFFER_BYTES if buffer_size is None else buffer_size)

    @staticmethod
    def dcp_optimized(max_gap_size: float = _MAX_GAP_BYTES) -> _Constructor:
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
    def default() -> _Constructor:
        """``sequential``."""
        return _sequential


class _Whole(io.RawIOBase):
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


def _sequential(item: Object) -> S3Reader:
    # Nothing is buffered twice: what there is to read is in memory.
    return _named(S3Reader(_Whole(item.get()), 4096), item)


def _named(reader: S3Reader, item: Object) -> S3Reader:
    reader.bucket, reader.key = item.bucket.name, item.name
    return reader


@dataclass(frozen=True, slots=True)
class _RangeBased:
    """As a class, because a dataset pickles with it."""

    buffer_size: int

    def __call__(self, item: Object) -> S3Reader:
        return _named(_Ranged(item, window=max(self.buffer_size, 1)), item)


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
    reader = _Ranged(item, window=window, num_workers=num_workers, props=props, ranges=ranges)
    reader.seek(position)
    return _named(reader, item)


def _identity(reader: S3Reader) -> Any:
    return reader


class _Lazy:
    """What both datasets share: sources that are listed when they are first needed."""

    def __init__(
        self,
        sources: Callable[[Client], list[Any]],
        region: str | None,
        endpoint: str | None,
        transform: Callable[[S3Reader], Any],
        s3client_config: S3ClientConfig | None,
        reader_constructor: _Constructor | None,
        options: dict[str, Any],
    ) -> None:
        self.region = region
        self.endpoint = endpoint
        self._retry = s3client_config and Retry(max_attempts=s3client_config.max_attempts)
        self._sources = sources
        self._transform = transform
        self._read = reader_constructor or _sequential
        self._options = options
        self._listed: Any = None

    @classmethod
    def from_prefix(
        cls,
        s3_uri: str,
        *,
        region: str | None = None,
        endpoint: str | None = None,
        transform: Callable[[S3Reader], Any] = _identity,
        s3client_config: S3ClientConfig | None = None,
        reader_constructor: _Constructor | None = None,
        **options: Any,
    ) -> Self:
        """All objects whose URIs begin so.

        Args:
            s3_uri: ``s3://bucket/prefix``, or the URI of any other bucket of the cluster.
            region: Accepted for compatibility, with ``endpoint`` and ``s3client_config``.
            transform: Makes a sample of the S3Reader of an object, in the worker.
            reader_constructor: One of S3ReaderConstructor's.
            options: ``enable_sharding`` of S3IterableDataset; those of BaseMapDataset or
                BaseIterDataset.
        """
        return cls(
            _Prefix(s3_uri), region, endpoint, transform, s3client_config, reader_constructor, options
        )

    @classmethod
    def from_objects(
        cls,
        object_uris: str | Iterable[str],
        *,
        region: str | None = None,
        endpoint: str | None = None,
        transform: Callable[[S3Reader], Any] = _identity,
        s3client_config: S3ClientConfig | None = None,
        reader_constructor: _Constructor | None = None,
        **options: Any,
    ) -> Self:
        """These objects, in this order; one that is named twice comes once."""
        uris = [object_uris] if isinstance(object_uris, str) else list(object_uris)
        return cls(
            _Objects(uris), region, endpoint, transform, s3client_config, reader_constructor, options
        )

    def _sample(self, item: Object) -> Any:
        try:
            return self._transform(self._read(item))
        except StopIteration as error:
            raise stopped("transform", f"the object {item.uri}") from error

    def _client(self) -> Client:
        client = self._options.get("client")
        own = client if isinstance(client, Client) else Client()
        return own.with_retry(self._retry)


class S3Checkpoint:
    """Files for ``torch.save`` and ``torch.load`` by URI; see :class:`forebay_torch.Checkpoint`.

    Args:
        region: Accepted for compatibility, with ``endpoint``.
        s3client_config: ``part_size`` and ``max_attempts``; by default parts have 16 MiB.
        reader_constructor: How ``reader`` reads: one of S3ReaderConstructor's; by default by ranges.
        client: Of the cluster; by default one from the environment.

    Example:
        >>> checkpoint = S3Checkpoint(region="us-east-1")
        >>> with checkpoint.writer("s3://bucket/epoch-0.pt") as writer:
        ...     torch.save(model.state_dict(), writer)
        >>> with checkpoint.reader("s3://bucket/epoch-0.pt") as reader:
        ...     model.load_state_dict(torch.load(reader, weights_only=True))
    """

    def __init__(
        self,
        region: str | None = None,
        endpoint: str | None = None,
        s3client_config: S3ClientConfig | None = None,
        *,
        reader_constructor: _Constructor | None = None,
        client: Client | None = None,
    ) -> None:
        self._read = reader_constructor
        self.region = region
        self.endpoint = endpoint
        config = s3client_config
        own = (client or Client()).with_retry(config and Retry(max_attempts=config.max_attempts))
        self._checkpoint = (
            Checkpoint(storage_client=own)
            if config is None
            else Checkpoint(storage_client=own, part_size=config.part_size)
        )

    def reader(self, s3_uri: str) -> S3Reader:
        """The object as a seekable file; nothing is asked for before the first read.

        Raises:
            ValueError: It is no URI of an object.
            S3Exception: At a read: it is not there, was replaced, or cannot be read.
        """
        item = self._checkpoint.object(s3_uri)
        if self._read is not None:
            return self._read(item)
        return _named(_Ranged(item, num_workers=self._checkpoint.concurrency), item)

    def writer(self, s3_uri: str) -> S3Writer:
        """A file whose content becomes the object when it is closed.

        Raises:
            ValueError: It is no URI of an object.
            S3Exception: At ``write`` or ``close``: a part could not be stored.
        """
        files = self._checkpoint
        return S3Writer(files.object(s3_uri), files.parts_ahead, part_size=files.part_size)


class S3MapDataset(_Lazy, Dataset[Any]):
    """Samples by index; made by ``from_prefix`` or ``from_objects``. The objects are listed at the
    first ``len()`` or sample."""

    def __len__(self) -> int:
        frameworks.share_random_order()
        return len(self._inner())

    def __getitem__(self, i: int) -> Any:
        return self._inner()[i]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        inner = self._inner()
        if not decides_by_item(type(self), S3MapDataset):
            return inner.samples(indices, self._read is _sequential)
        return inner.samples(indices, self._read is _sequential, self.__getitem__)

    def _inner(self) -> _MapOfReaders:
        if self._listed is None:
            client = self._client()
            options = {**self._options, "client": client}
            self._listed = _MapOfReaders(self._sources(client), self._sample, options)
        inner: _MapOfReaders = self._listed
        return inner


class S3IterableDataset(_Lazy, TorchIterableDataset[Any]):
    """Samples one after the other; made by ``from_prefix`` or ``from_objects``.

    With ``enable_sharding=True`` ranks and workers share the objects; without, as in the original,
    each of them reads all.
    """

    # Of the process that this one was pickled in, which had a process group.
    _rank: tuple[int, int] | None = None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._inner())

    def __len__(self) -> int:
        return len(self._inner())

    def __getstate__(self) -> dict[str, Any]:
        # A spawned worker has no process group to ask.
        return {**self.__dict__, "_rank": self._rank or dist.group_rank()}

    def _inner(self) -> _StreamOfReaders:
        if self._listed is None:
            client = self._client()
            options = {**self._options, "client": client}
            sharded = bool(options.pop("enable_sharding", False))
            if self._rank is not None and options.get("rank") is None:
                options["rank"], options["world_size"] = self._rank
            self._listed = _StreamOfReaders(self._sources(client), self._sample, sharded, options)
        inner: _StreamOfReaders = self._listed
        return inner


class _MapOfReaders(BaseMapDataset):
    def __init__(
        self, sources: list[Any], sample: Callable[[Object], Any], options: dict[str, Any]
    ) -> None:
        super().__init__(sources, **options)
        self._make = sample
        # Of a subclass of S3MapDataset.
        self._own_item: Callable[[Any], Any] | None = None

    def __getitem__(self, index: Any) -> Any:
        return self._make(self.get_obj_list()[index])

    def samples(
        self, indices: list[int], together: bool, item: Callable[[Any], Any] | None = None
    ) -> list[Any]:
        """The samples of a batch.

        Args:
            together: Whether the objects are fetched together before.
            item: What makes a sample of an index, where a subclass of the dataset does.
        """
        self._own_item = item
        if together:
            return self._each(indices)
        return [self._item(index) for index in indices]

    def _item(self, index: Any) -> Any:
        item = self._own_item
        if item is None:
            return super()._item(index)
        try:
            return item(index)
        except StopIteration as error:
            raise stopped("__getitem__", f"the index {index!r}") from error


class _StreamOfReaders(BaseIterDataset):
    def __init__(
        self,
        sources: list[Any],
        sample: Callable[[Object], Any],
        sharded: bool,
        options: dict[str, Any],
    ) -> None:
        super().__init__(sources, **{"shard_by_rank": sharded, **options})
        self._make = sample
        self._sharded = sharded

    def __iter__(self) -> Iterator[Any]:
        if self._sharded:
            self.reset()
            for item in self.worker_objects():
                yield self._make(item)
            return
        made = self._cursor.open()
        self._cursor.begin(made)
        for row in self._rows(range(len(self._index.listing)), made.epoch):
            yield self._make(self._index.object(row))


@dataclass(frozen=True, slots=True)
class _Prefix:
    """Sources by a prefix."""

    uri: str

    def __call__(self, client: Client) -> list[Any]:
        return [self.uri]


@dataclass(frozen=True, slots=True)
class _Objects:
    """Sources by names: a group for each stretch of one bucket."""

    uris: list[str]

    def __call__(self, client: Client) -> list[Any]:
        stretches: list[tuple[Any, list[str]]] = []
        for uri in self.uris:
            bucket, name = client.bucket_of(uri)
            if not name:
                raise ValueError(f"{uri!r} names a bucket, not an object; from_prefix takes it")
            if not stretches or stretches[-1][0] != bucket:
                stretches.append((bucket, []))
            stretches[-1][1].append(name)
        return [bucket.objects(names=names) for bucket, names in stretches]
