"""Buckets, groups of objects in one, and the jobs that are about them, awaited."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from forebay.aio.object import AsyncObject
from forebay.aio.threads import Wrapped
from forebay.bucket import Bucket, ObjectGroup
from forebay.job import Job
from forebay.listing import Listing
from forebay.shard import ShardIndex
from forebay.types import BucketWarmth, JobStatus, ObjectEntry, ObjectRange, PrefetchPlan

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["AsyncBucket", "AsyncJob", "AsyncObjectGroup"]

_ROWS_PER_CALL = 1000


class AsyncBucket(Wrapped[Bucket]):
    """As :class:`forebay.Bucket`."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return self._sync.name

    @property
    def provider(self) -> str:
        return self._sync.provider

    @property
    def uri(self) -> str:
        return self._sync.uri

    async def create(
        self,
        exist_ok: bool = False,
        *,
        folder: str | os.PathLike[str] | None = None,
        account: str | None = None,
    ) -> AsyncBucket:
        await self._threads.call(self._sync.create, exist_ok, folder=folder, account=account)
        return self

    async def delete(self, missing_ok: bool = False) -> None:
        await self._threads.call(self._sync.delete, missing_ok)

    async def head(self) -> dict[str, Any]:
        return await self._threads.call(self._sync.head)

    async def info(self) -> dict[str, Any]:
        return await self._threads.call(self._sync.info)

    async def warmth(self) -> BucketWarmth:
        return await self._threads.call(self._sync.warmth)

    def list_objects(
        self, prefix: str = "", *, page_size: int = 0, recursive: bool = True
    ) -> AsyncIterator[ObjectEntry]:
        rows = partial(
            self._sync.list_objects, prefix, page_size=page_size, recursive=recursive
        )
        return self._threads.iterate(rows, _ROWS_PER_CALL)

    async def list_snapshot(self, prefix: str = "") -> Listing:
        return await self._threads.call(self._sync.list_snapshot, prefix)

    async def shard_index(self, name: str) -> ShardIndex:
        return await self._threads.call(self._sync.shard_index, name)

    def object(self, name: str) -> AsyncObject:
        return AsyncObject(self._sync.object(name), self._threads)

    def objects(
        self,
        names: Iterable[str] | None = None,
        range: ObjectRange | None = None,
        template: str | None = None,
    ) -> AsyncObjectGroup:
        return AsyncObjectGroup(self._sync.objects(names, range, template), self._threads)

    async def put_many(self, items: Iterable[tuple[str, Buffer]], concurrency: int = 16) -> int:
        return await self._threads.call(self._sync.put_many, items, concurrency)

    @overload
    async def get_many(
        self, names: Iterable[str], *, as_bytes: Literal[False] = False
    ) -> list[memoryview]: ...
    @overload
    async def get_many(self, names: Iterable[str], *, as_bytes: Literal[True]) -> list[bytes]: ...
    async def get_many(
        self, names: Iterable[str], *, as_bytes: bool = False
    ) -> list[memoryview] | list[bytes]:
        get = cast(Any, self._sync.get_many)
        found: list[memoryview] | list[bytes]
        found = await self._threads.call(get, names, as_bytes=as_bytes)
        return found

    async def prefetch(
        self,
        names: Iterable[str] | None = None,
        *,
        template: str | None = None,
        prefix: str | None = None,
    ) -> AsyncJob:
        job = await self._threads.call(
            self._sync.prefetch, names, template=template, prefix=prefix
        )
        return AsyncJob(job, self._threads)

    async def prefetch_plan(
        self,
        names: Iterable[str] | None = None,
        *,
        template: str | None = None,
        prefix: str | None = None,
    ) -> PrefetchPlan:
        return await self._threads.call(
            self._sync.prefetch_plan, names, template=template, prefix=prefix
        )

    async def evict(
        self,
        names: Iterable[str] | None = None,
        *,
        template: str | None = None,
        prefix: str | None = None,
    ) -> AsyncJob:
        job = await self._threads.call(self._sync.evict, names, template=template, prefix=prefix)
        return AsyncJob(job, self._threads)

    async def write_back(
        self,
        to: AsyncBucket | str,
        names: Iterable[str] | None = None,
        *,
        template: str | None = None,
        prefix: str | None = None,
        remove: bool = False,
    ) -> AsyncJob:
        where = to if isinstance(to, str) else to._sync
        job = await self._threads.call(
            self._sync.write_back, where, names, template=template, prefix=prefix, remove=remove
        )
        return AsyncJob(job, self._threads)


class AsyncObjectGroup(Wrapped[ObjectGroup]):
    """As :class:`forebay.ObjectGroup`."""

    __slots__ = ()

    @property
    def names(self) -> Sequence[str]:
        return self._sync.names

    async def list_snapshot(self, prefix: str = "") -> Listing:
        return await self._threads.call(self._sync.list_snapshot, prefix)

    async def prefetch(self) -> AsyncJob:
        return AsyncJob(await self._threads.call(self._sync.prefetch), self._threads)

    async def evict(self) -> AsyncJob:
        return AsyncJob(await self._threads.call(self._sync.evict), self._threads)

    def __len__(self) -> int:
        return len(self._sync)

    def __iter__(self) -> Iterator[AsyncObject]:
        return (AsyncObject(item, self._threads) for item in self._sync)


class AsyncJob(Wrapped[Job]):
    """As :class:`forebay.Job`."""

    __slots__ = ()

    @property
    def id(self) -> str:
        return self._sync.id

    async def status(self) -> JobStatus:
        return await self._threads.call(self._sync.status)

    async def stop(self) -> None:
        await self._threads.call(self._sync.stop)

    async def wait(self, timeout: float | None = None) -> JobStatus:
        return await self._threads.call(self._sync.wait, timeout)
