"""Datasets of ``s3torchconnector``, listed when they are first needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

from torch.utils.data import Dataset, IterableDataset as TorchIterableDataset

from forebay import Client, Object, Retry
from forebay_torch import dist, frameworks
from forebay_torch.base_iter_dataset import BaseIterDataset
from forebay_torch.base_map_dataset import BaseMapDataset
from forebay_torch.compat.s3.config import S3ClientConfig
from forebay_torch.compat.s3.reader import ReaderConstructor, S3Reader, sequential
from forebay_torch.custom_getitem import decides_by_item
from forebay_torch.policy import stopped

__all__ = ["S3IterableDataset", "S3MapDataset"]


def _identity(reader: S3Reader) -> Any:
    return reader


class _LazyListing:
    """Base of both datasets: sources that are listed when they are first needed."""

    def __init__(
        self,
        sources: Callable[[Client], list[Any]],
        region: str | None,
        endpoint: str | None,
        transform: Callable[[S3Reader], Any],
        s3client_config: S3ClientConfig | None,
        reader_constructor: ReaderConstructor | None,
        options: dict[str, Any],
    ) -> None:
        self.region = region
        self.endpoint = endpoint
        self._retry = s3client_config and Retry(max_attempts=s3client_config.max_attempts)
        self._sources = sources
        self._transform = transform
        self._read = reader_constructor or sequential
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
        reader_constructor: ReaderConstructor | None = None,
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
            _PrefixSources(s3_uri), region, endpoint, transform, s3client_config, reader_constructor, options
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
        reader_constructor: ReaderConstructor | None = None,
        **options: Any,
    ) -> Self:
        """These objects, in this order; one that is named twice comes once."""
        uris = [object_uris] if isinstance(object_uris, str) else list(object_uris)
        return cls(
            _ObjectSources(uris), region, endpoint, transform, s3client_config, reader_constructor, options
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


class S3MapDataset(_LazyListing, Dataset[Any]):
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
            return inner.samples(indices, self._read is sequential)
        return inner.samples(indices, self._read is sequential, self.__getitem__)

    def _inner(self) -> _MapOfReaders:
        if self._listed is None:
            client = self._client()
            options = {**self._options, "client": client}
            self._listed = _MapOfReaders(self._sources(client), self._sample, options)
        inner: _MapOfReaders = self._listed
        return inner


class S3IterableDataset(_LazyListing, TorchIterableDataset[Any]):
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
            item: Function that makes a sample of an index, where a subclass of the dataset has one.
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
class _PrefixSources:
    """Sources by a prefix."""

    uri: str

    def __call__(self, client: Client) -> list[Any]:
        return [self.uri]


@dataclass(frozen=True, slots=True)
class _ObjectSources:
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
