"""One object: its bytes in and out, awaited."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from forebay.aio.threads import Wrapped
from forebay.object import WINDOW_BYTES, Object, Reader
from forebay.range_reader import RangeReader
from forebay.shard import ShardStream
from forebay.types import ArchiveConfig, ObjectProps
from forebay.writer import Writer

if TYPE_CHECKING:
    import torch
    from typing_extensions import Buffer

__all__ = ["AsyncObject", "AsyncReader", "AsyncShardStream", "AsyncWriter"]

# Inside AsyncReader the bare name would mean its method.
_View: TypeAlias = memoryview


class AsyncObject(Wrapped[Object]):
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


class AsyncReader(Wrapped[Reader]):
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


class AsyncWriter(Wrapped[Writer]):
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


class AsyncShardStream(Wrapped[ShardStream]):
    """As :class:`forebay.ShardStream`."""

    __slots__ = ()

    @property
    def uri(self) -> str:
        return self._sync.uri

    def __aiter__(self) -> AsyncIterator[tuple[str, Any]]:
        return self._threads.iterate(lambda: iter(self._sync))

    async def next_run(
        self, like: dict[str, Any] | None = None
    ) -> list[tuple[str, dict[str, Any]]]:
        return await self._threads.call(self._sync.next_run, like)

    def close(self) -> None:
        self._sync.close()
