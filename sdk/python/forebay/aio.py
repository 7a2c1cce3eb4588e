"""The client for ``asyncio``: the names and arguments of the blocking one, awaited.

    client = forebay.AsyncClient()
    bucket = await client.bucket("images").create(exist_ok=True)
    await bucket.object("cat.jpg").put(b"...")
    pictures = await asyncio.gather(*(bucket.object(n).get().read_all() for n in names))

A call waits in a thread of the client's own, without the GIL, so the loop goes on meanwhile. When
its task is cancelled the request is, too: its connection is closed, and a half-sent object is
never seen.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, cast, overload

from forebay import _core
from forebay.batch import Batch
from forebay.bucket import Bucket, ObjectGroup
from forebay.client import Client, Cluster
from forebay.errors import ForebayError
from forebay.job import Job
from forebay.listing import Listing
from forebay.object import WINDOW_BYTES, Object, Reader, Writer
from forebay.range_reader import RangeReader
from forebay.retry import Retry
from forebay.shard import ShardIndex, ShardStream
from forebay.types import (
    ArchiveConfig,
    BatchResult,
    JobStatus,
    ObjectEntry,
    ObjectProps,
    ObjectRange,
)

if TYPE_CHECKING:
    from typing import ParamSpec, Unpack

    import torch
    from typing_extensions import Buffer

    from forebay.dsort import DsortOptions

    P = ParamSpec("P")

__all__ = [
    "AsyncBatch",
    "AsyncBucket",
    "AsyncClient",
    "AsyncCluster",
    "AsyncJob",
    "AsyncObject",
    "AsyncObjectGroup",
    "AsyncReader",
    "AsyncShardStream",
    "AsyncWriter",
    "Threads",
]

T = TypeVar("T")
_ROWS_AT_ONCE = 1000
# Inside AsyncReader the bare name would mean its method.
_View: TypeAlias = memoryview


class Threads:
    """Where calls wait; threads are made as they are needed, in each process.

    Args:
        count: Most calls that wait at once; further ones wait for their turn.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._pid = 0
        self._pool: ThreadPoolExecutor | None = None

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What the function returns, or raises; cancelled with the task that awaits it."""
        if self._pool is None or self._pid != os.getpid():
            self._pool, self._pid = ThreadPoolExecutor(self.count, "forebay-aio"), os.getpid()
        cancel = _core.Cancel()
        work = partial(cancel.run, function, *args, **kwargs)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except asyncio.CancelledError:
            cancel.cancel()
            raise

    async def iterate(
        self, make: Callable[[], Iterable[T]], at_once: int = 1
    ) -> AsyncIterator[T]:
        """Each item of an iterable that waits, so many for one change of threads."""
        iterator: Iterator[T] = iter(await self.call(make))
        while items := await self.call(lambda: list(itertools.islice(iterator, at_once))):
            for item in items:
                yield item

    def close(self) -> None:
        """Lets the threads go; calls that wait for their turn are cancelled."""
        if self._pool is not None and self._pid == os.getpid():
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Threads, (self.count,)


S = TypeVar("S")


class _Wrapped(Generic[S]):
    """A blocking object and the threads in which it may wait."""

    __slots__ = ("_sync", "_threads")

    def __init__(self, sync: S, threads: Threads) -> None:
        self._sync = sync
        self._threads = threads

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Wrapped):
            return NotImplemented
        return type(self) is type(other) and bool(self._sync == other._sync)

    def __hash__(self) -> int:
        return hash((type(self), self._sync))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._sync, self._threads)

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"


class AsyncClient(_Wrapped[Client]):
    """As :class:`forebay.Client`; also an asynchronous context manager.

    Args:
        endpoint, timeout, retry: As there. Without an endpoint the local server is found or
            started here and now, which may take a second.
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
    ) -> None:
        if max_concurrency < 1:
            raise ValueError(f"max_concurrency must be at least 1, not {max_concurrency}")
        client = Client(endpoint, timeout=timeout, retry=retry)
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
    _Wrapped.__init__(made, client, threads)
    return made


class AsyncCluster(_Wrapped[Cluster]):
    """As :class:`forebay.Cluster`."""

    __slots__ = ()

    async def map(self) -> dict[str, Any]:
        return await self._threads.call(self._sync.map)

    async def info(self) -> dict[str, Any]:
        return await self._threads.call(self._sync.info)


class AsyncBucket(_Wrapped[Bucket]):
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
        self, exist_ok: bool = False, *, folder: str | os.PathLike[str] | None = None
    ) -> AsyncBucket:
        await self._threads.call(self._sync.create, exist_ok, folder=folder)
        return self

    async def delete(self, missing_ok: bool = False) -> None:
        await self._threads.call(self._sync.delete, missing_ok)

    async def head(self) -> dict[str, Any]:
        return await self._threads.call(self._sync.head)

    def list_objects(
        self, prefix: str = "", *, page_size: int = 0, recursive: bool = True
    ) -> AsyncIterator[ObjectEntry]:
        rows = partial(
            self._sync.list_objects, prefix, page_size=page_size, recursive=recursive
        )
        return self._threads.iterate(rows, _ROWS_AT_ONCE)

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

    async def evict(
        self,
        names: Iterable[str] | None = None,
        *,
        template: str | None = None,
        prefix: str | None = None,
    ) -> AsyncJob:
        job = await self._threads.call(self._sync.evict, names, template=template, prefix=prefix)
        return AsyncJob(job, self._threads)


class AsyncObjectGroup(_Wrapped[ObjectGroup]):
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


class AsyncObject(_Wrapped[Object]):
    """As :class:`forebay.Object`."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return self._sync.name

    @property
    def size(self) -> int | None:
        return self._sync.size

    @property
    def uri(self) -> str:
        return self._sync.uri

    def get(
        self,
        *,
        byte_range: tuple[int, int] | str | None = None,
        archive_config: ArchiveConfig | None = None,
        archpath: str | None = None,
        num_workers: int = 0,
    ) -> AsyncReader:
        return self.get_reader(
            byte_range=byte_range,
            archive_config=archive_config,
            archpath=archpath,
            num_workers=num_workers,
        )

    def get_reader(
        self,
        *,
        byte_range: tuple[int, int] | str | None = None,
        archive_config: ArchiveConfig | None = None,
        archpath: str | None = None,
        num_workers: int = 0,
    ) -> AsyncReader:
        reader = self._sync.get_reader(
            byte_range=byte_range,
            archive_config=archive_config,
            archpath=archpath,
            num_workers=num_workers,
        )
        return AsyncReader(reader, self._threads)

    def samples(
        self,
        *,
        keys: Literal["webdataset", "basename"] = "webdataset",
        lowercase: bool = False,
        read_ahead: int = 8 << 20,
        mime: str | None = None,
    ) -> AsyncShardStream:
        stream = self._sync.samples(
            keys=keys, lowercase=lowercase, read_ahead=read_ahead, mime=mime
        )
        return AsyncShardStream(stream, self._threads)

    def members(self, *, read_ahead: int = 8 << 20, mime: str | None = None) -> AsyncShardStream:
        stream = self._sync.members(read_ahead=read_ahead, mime=mime)
        return AsyncShardStream(stream, self._threads)

    async def put(
        self, data: Buffer | str | os.PathLike[str], *, num_workers: int = 0
    ) -> ObjectProps:
        return await self._threads.call(self._sync.put, data, num_workers=num_workers)

    def get_writer(self, num_workers: int = 4) -> AsyncWriter:
        return AsyncWriter(self._sync.get_writer(num_workers), self._threads)

    def get_range_reader(
        self,
        *,
        window: int = WINDOW_BYTES,
        num_workers: int = 4,
        props: ObjectProps | None = None,
        ranges: Sequence[tuple[int, int]] | None = None,
    ) -> RangeReader:
        """The blocking file itself: for code that takes files, in a thread of its own."""
        return self._sync.get_range_reader(
            window=window, num_workers=num_workers, props=props, ranges=ranges
        )

    async def head(self) -> ObjectProps:
        return await self._threads.call(self._sync.head)

    async def copy(self, to: AsyncObject) -> None:
        await self._threads.call(self._sync.copy, to._sync)

    async def delete(self, missing_ok: bool = False) -> None:
        await self._threads.call(self._sync.delete, missing_ok)


class AsyncReader(_Wrapped[Reader]):
    """As :class:`forebay.Reader`, without the methods of a file."""

    __slots__ = ()

    async def read_all(self) -> bytes:
        return await self._threads.call(self._sync.read_all)

    async def memoryview(self) -> _View:
        return await self._threads.call(self._sync.memoryview)

    async def read_into(self, buffer: Buffer, offset: int = 0) -> int:
        return await self._threads.call(self._sync.read_into, buffer, offset)

    async def as_tensor(
        self, dtype: torch.dtype | None = None, shape: Sequence[int] | None = None
    ) -> torch.Tensor:
        return await self._threads.call(self._sync.as_tensor, dtype, shape)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._threads.iterate(lambda: iter(self._sync))


class AsyncWriter(_Wrapped[Writer]):
    """As :class:`forebay.Writer`; an asynchronous context manager."""

    __slots__ = ()

    async def write(self, data: Buffer, /) -> int:
        return await self._threads.call(self._sync.write, data)

    async def close(self) -> None:
        await self._threads.call(self._sync.close)

    async def abort(self) -> None:
        await self._threads.call(self._sync.abort)

    async def __aenter__(self) -> AsyncWriter:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await (self.close() if kind is None else self.abort())


class AsyncShardStream(_Wrapped[ShardStream]):
    """As :class:`forebay.ShardStream`."""

    __slots__ = ()

    @property
    def uri(self) -> str:
        return self._sync.uri

    def __aiter__(self) -> AsyncIterator[tuple[str, Any]]:
        return self._threads.iterate(lambda: iter(self._sync))

    def close(self) -> None:
        self._sync.close()


class AsyncBatch(_Wrapped[Batch]):
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


class AsyncJob(_Wrapped[Job]):
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
