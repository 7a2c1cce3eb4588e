"""The way into a cluster, and batches of objects, awaited."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from forebay.aio.bucket import AsyncBucket, AsyncJob
from forebay.aio.object import AsyncObject
from forebay.aio.threads import Threads, Wrapped
from forebay.batch import Batch
from forebay.client import Client, Cluster
from forebay.errors import ForebayError
from forebay.pending import PendingMany
from forebay.retry import Retry
from forebay.shard import ShardIndex
from forebay.types import BatchResult

if TYPE_CHECKING:
    from typing import Unpack

    from forebay.dsort import DsortOptions

__all__ = ["AsyncBatch", "AsyncClient", "AsyncCluster", "AsyncPendingMany"]


class AsyncClient(Wrapped[Client]):
    """As :class:`forebay.Client`; also an asynchronous context manager.

    Args:
        endpoint, timeout, retry, notices, ca_file, token: As there. Without an endpoint the local server is
            found or started here and now, which may take a second.
        max_concurrency: Most calls that wait at once; further ones wait for their turn.
    """

    __slots__ = ()

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        timeout: float = 60.0,
        retry: Any = None,
        max_concurrency: int = 64,
        notices: bool | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        token: str | None = None,
    ) -> None:
        if max_concurrency < 1:
            raise ValueError(f"max_concurrency must be at least 1, not {max_concurrency}")
        client = Client(
            endpoint, timeout=timeout, retry=retry, notices=notices, ca_file=ca_file, token=token
        )
        super().__init__(client, Threads(max_concurrency))

    @property
    def endpoint(self) -> str:
        """URL of the cluster."""
        return self._sync.endpoint

    @property
    def timeout(self) -> float:
        """Seconds."""
        return self._sync.timeout

    @property
    def retry(self) -> Retry | None:
        """How targets try clouds again for this client."""
        return self._sync.retry

    def with_retry(self, retry: Any) -> AsyncClient:
        return _make_client(self._sync.with_retry(retry), self._threads)

    def bucket(self, name: str, provider: str = "ais") -> AsyncBucket:
        return AsyncBucket(self._sync.bucket(name, provider), self._threads)

    def bucket_of(self, uri: str) -> tuple[AsyncBucket, str]:
        bucket, path = self._sync.bucket_of(uri)
        return AsyncBucket(bucket, self._threads), path

    async def buckets(self, provider: str | None = None) -> list[AsyncBucket]:
        found = await self._threads.call(self._sync.buckets, provider)
        return [AsyncBucket(bucket, self._threads) for bucket in found]

    def batch(
        self,
        objects: Iterable[AsyncObject | str] = (),
        bucket: AsyncBucket | None = None,
        *,
        on_error: Literal["raise", "return"] = "raise",
    ) -> AsyncBatch:
        batch = Batch(self._sync, None if bucket is None else bucket._sync, on_error=on_error)
        for item in objects:
            batch.add(item if isinstance(item, str) else item._sync)
        return AsyncBatch(batch, self._threads)

    @overload
    async def get_many(
        self,
        objects: Sequence[tuple[AsyncBucket, str]],
        *,
        on_error: Literal["raise"] = "raise",
        as_bytes: Literal[False] = False,
    ) -> list[memoryview]: ...
    @overload
    async def get_many(
        self,
        objects: Sequence[tuple[AsyncBucket, str]],
        *,
        on_error: Literal["raise"] = "raise",
        as_bytes: Literal[True],
    ) -> list[bytes]: ...
    @overload
    async def get_many(
        self,
        objects: Sequence[tuple[AsyncBucket, str]],
        *,
        on_error: Literal["return"],
        as_bytes: Literal[False] = False,
    ) -> list[memoryview | ForebayError]: ...
    @overload
    async def get_many(
        self,
        objects: Sequence[tuple[AsyncBucket, str]],
        *,
        on_error: Literal["return"],
        as_bytes: Literal[True],
    ) -> list[bytes | ForebayError]: ...
    async def get_many(
        self,
        objects: Sequence[tuple[AsyncBucket, str]],
        *,
        on_error: Literal["raise", "return"] = "raise",
        as_bytes: bool = False,
    ) -> Sequence[memoryview | bytes | ForebayError]:
        wanted = [(bucket._sync, name) for bucket, name in objects]
        get = cast(Any, self._sync.get_many)
        found: Sequence[memoryview | bytes | ForebayError]
        found = await self._threads.call(get, wanted, on_error=on_error, as_bytes=as_bytes)
        return found

    def submit_many(
        self, objects: Sequence[tuple[AsyncBucket, str]], *, as_bytes: bool = False
    ) -> AsyncPendingMany:
        wanted = [(bucket._sync, name) for bucket, name in objects]
        pending = self._sync.submit_many(wanted, as_bytes=as_bytes)
        return AsyncPendingMany(pending, self._threads)

    async def shard_indexes(
        self, shards: Iterable[AsyncObject], *, concurrency: int = 16
    ) -> list[ShardIndex | ForebayError]:
        wanted = [shard._sync for shard in shards]
        return await self._threads.call(
            self._sync.shard_indexes, wanted, concurrency=concurrency
        )

    def job(self, id: str) -> AsyncJob:
        return AsyncJob(self._sync.job(id), self._threads)

    async def dsort(
        self,
        source: AsyncBucket | str,
        destination: AsyncBucket | str,
        template: str = "shard-%06d",
        **options: Unpack[DsortOptions],
    ) -> AsyncJob:
        shards = source if isinstance(source, str) else source._sync
        into = destination if isinstance(destination, str) else destination._sync
        job = await self._threads.call(
            lambda: self._sync.dsort(shards, into, template, **options)
        )
        return AsyncJob(job, self._threads)

    def cluster(self) -> AsyncCluster:
        return AsyncCluster(self._sync.cluster(), self._threads)

    async def aclose(self) -> None:
        """Lets the threads go; calls that wait for their turn are cancelled."""
        self._threads.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_client, (self._sync, self._threads)


def _make_client(client: Client, threads: Threads) -> AsyncClient:
    made = AsyncClient.__new__(AsyncClient)
    Wrapped.__init__(made, client, threads)
    return made


class AsyncCluster(Wrapped[Cluster]):
    """As :class:`forebay.Cluster`."""

    __slots__ = ()

    async def map(self) -> dict[str, Any]:
        return await self._threads.call(self._sync.map)

    async def info(self) -> dict[str, Any]:
        return await self._threads.call(self._sync.info)


class AsyncPendingMany(Wrapped[PendingMany]):
    """As :class:`forebay.PendingMany`."""

    __slots__ = ()

    async def result(self) -> Sequence[memoryview | bytes | ForebayError]:
        return await self._threads.call(self._sync.result)


class AsyncBatch(Wrapped[Batch]):
    """As :class:`forebay.Batch`."""

    __slots__ = ()

    def add(
        self,
        item: AsyncObject | str,
        *,
        archpath: str | None = None,
        start: int | None = None,
        length: int | None = None,
        opaque: bytes | None = None,
    ) -> AsyncBatch:
        self._sync.add(
            item if isinstance(item, str) else item._sync,
            archpath=archpath,
            start=start,
            length=length,
            opaque=opaque,
        )
        return self

    def get(self, *, ordered: bool = True) -> AsyncIterator[tuple[BatchResult, memoryview]]:
        return self._threads.iterate(lambda: self._sync.get(ordered=ordered))

    async def get_all(self) -> list[tuple[BatchResult, memoryview]]:
        return await self._threads.call(self._sync.get_all)

    def __len__(self) -> int:
        return len(self._sync)
