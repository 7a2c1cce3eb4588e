"""Names: what there is in buckets, and making, copying and removing it."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import errno
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar

from fsspec.asyn import AsyncFileSystem, get_loop  # type: ignore[import-untyped]
from fsspec.utils import tokenize  # type: ignore[import-untyped]

from forebay.aio import Threads
from forebay.client import Client
from forebay.errors import NotFound
from forebay.fsspec.tree import Info, below, file_info, folder_info, has_anything, level
from forebay.object import Object
from forebay.spans import carried

if TYPE_CHECKING:
    from forebay.bucket import Bucket

__all__ = ["MAX_CONCURRENT_CALLS", "Names"]

# Requests at a time where a call is about many objects.
MAX_CONCURRENT_CALLS = 16
# Ranges and parts of one file that are transferred concurrently.
_PARTS_PER_FILE = 4


class Names(AsyncFileSystem):  # type: ignore[misc]
    """The part of a ForebayFileSystem that is about names; arguments as there."""

    protocol: ClassVar[tuple[str, ...]] = ("forebay", "fb")

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        provider: str = "ais",
        timeout: float = 60.0,
        block_size: int = 16 << 20,
        num_workers: int = _PARTS_PER_FILE,
        max_concurrency: int = 64,
        asynchronous: bool = False,
        loop: Any = None,
        batch_size: int | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        token: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(asynchronous=asynchronous, loop=loop, batch_size=batch_size, **options)
        self.client = Client(endpoint, timeout=timeout, ca_file=ca_file, token=token)
        self.provider = provider
        self.blocksize = block_size
        self.num_workers = num_workers
        self._threads = Threads(max_concurrency)
        # An unknown provider is an error now.
        self.client.bucket("any", provider)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that runs coroutines of the blocking calls; a forked process has its own."""
        own = self._loop if self._pid == os.getpid() else None
        loop: asyncio.AbstractEventLoop = own or get_loop()
        return loop

    @property
    def fsid(self) -> str:
        """The cluster and the provider."""
        return f"forebay-{self.provider}-{self.client.endpoint}"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        stripped = super()._strip_protocol(path)
        return stripped if isinstance(stripped, list) else stripped.lstrip("/")

    # Existing names.

    def info(self, path: str, **kwargs: Any) -> Info:
        """Name, size and type; of a file also its version, checksum, and when it was modified."""
        path = self._strip_protocol(path)
        bucket, name = self._split(path)
        if bucket is None:
            return folder_info("")
        if not name:
            bucket.head()
            return folder_info(path)
        try:
            return file_info(path, bucket.object(name).head())
        except NotFound:
            if has_anything(bucket, name):
                return folder_info(path)
            raise

    def exists(self, path: str, **kwargs: Any) -> bool:
        """Whether there is a file, a folder or a bucket. A failed request is an error."""
        try:
            self.info(path)
        except FileNotFoundError:
            return False
        return True

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """Lists a folder, a bucket, or the buckets; for a file, the file itself."""
        path = self._strip_protocol(path)
        bucket, name = self._split(path)
        if bucket is None:
            found = [folder_info(one.name) for one in self.client.buckets(self.provider)]
        else:
            found = list(level(bucket, f"{name}/" if name else ""))
            if not found and name:
                found = [file_info(path, bucket.object(name).head())]
        return found if detail else [one["name"] for one in found]

    def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        prefix: str = "",
        **kwargs: Any,
    ) -> Any:
        """All files below a folder, by one listing; with ``maxdepth`` level by level."""
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        path = self._strip_protocol(path)
        bucket, name = self._split(path)
        found: dict[str, Info] = {}
        if bucket is None:
            for own in self.ls("", detail=False):
                if withdirs and own.startswith(prefix):
                    found[own] = folder_info(own)
                if maxdepth != 1 and own.startswith(prefix):
                    depth = None if maxdepth is None else maxdepth - 1
                    found.update(self.find(own, depth, withdirs, detail=True))
        else:
            for one in below(bucket, f"{name}/" if name else "", prefix, maxdepth):
                if withdirs or one["type"] == "file":
                    found[one["name"]] = one
            if found and withdirs and not prefix:
                found[path] = folder_info(path)
            elif not found and name and not prefix:
                with contextlib.suppress(NotFound):
                    found[path] = file_info(path, bucket.object(name).head())
        ordered = dict(sorted(found.items()))
        return ordered if detail else list(ordered)

    def created(self, path: str) -> datetime.datetime:
        """Returns the time of the write; an object that is written again is a new one."""
        return self.modified(path)

    def modified(self, path: str) -> datetime.datetime:
        """Returns the time at which the file was last written."""
        info = self._file_info(path)
        return datetime.datetime.fromtimestamp(info["mtime"], tz=datetime.timezone.utc)

    def checksum(self, path: str) -> int:
        """A number that only this content of this file has."""
        info = self._file_info(path)
        return int(tokenize(*(info[key] for key in ("size", "version", "etag", "checksum"))), 16)

    def ukey(self, path: str) -> str:
        """The same as a text."""
        return f"{self.checksum(path):032x}"

    # Names.

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copies inside the cluster; a folder becomes nothing, as folders are not kept."""
        if not self._split(self._strip_protocol(path1))[1]:
            return
        source = self.object_of(path1)
        try:
            source.copy(self.object_of(path2))
        except NotFound:
            if not has_anything(source.bucket, source.name):
                raise

    def rm_file(self, path: str) -> None:
        """Removes one file."""
        item = self.object_of(path)
        try:
            item.delete()
        except NotFound:
            raise self._why_missing(path) from None

    def rm(
        self, path: Any, recursive: bool = False, maxdepth: int | None = None, **kwargs: Any
    ) -> None:
        """Removes files; with ``recursive`` folders too, and of this cluster's own buckets the
        bucket itself."""
        for one in [path] if isinstance(path, str) else path:
            if maxdepth is not None:
                found = self.expand_path(one, recursive=recursive, maxdepth=maxdepth)
                self._each(lambda name: self.object_of(name).delete(missing_ok=True), found)
            elif recursive:
                self._each(self._remove_tree, self.expand_path(one))
            else:
                self._each(self.rm_file, self.expand_path(one))

    def _remove_tree(self, path: str) -> None:
        bucket, name = self._split(path)
        if bucket is None:
            raise ValueError("rm() takes the name of a bucket, or of what is in one")
        listing = bucket.list_snapshot(f"{name}/" if name else "")
        self._each(lambda one: bucket.object(one).delete(missing_ok=True), listing.names())
        if name:
            bucket.object(name).delete(missing_ok=len(listing) > 0)
        elif bucket.provider == "ais":
            bucket.delete()

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Makes a bucket. Folders need not be made: only their bucket, with ``create_parents``."""
        bucket, name = self._split(self._strip_protocol(path))
        if bucket is None:
            raise ValueError("mkdir() takes the name of a bucket")
        if not name:
            bucket.create()
        elif create_parents:
            bucket.create(exist_ok=True)
        else:
            bucket.head()

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Makes the bucket of this path, if need be."""
        bucket, name = self._split(self._strip_protocol(path))
        if bucket is not None:
            bucket.create(exist_ok=exist_ok or bool(name))

    def rmdir(self, path: str) -> None:
        """Removes a bucket that is empty; a folder goes with its last file."""
        bucket, name = self._split(self._strip_protocol(path))
        if bucket is None:
            raise ValueError("rmdir() takes the name of a bucket")
        if has_anything(bucket, name):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        if not name:
            bucket.delete()

    # Inside.

    def _split(self, path: str) -> tuple[Bucket | None, str]:
        """The bucket, None for the root, and what is behind it."""
        name, _, rest = path.partition("/")
        return (self.client.bucket(name, self.provider) if name else None), rest

    def object_of(self, path: str) -> Object:
        """The object of a path.

        Raises:
            IsADirectoryError: It is a bucket, or nothing.
        """
        bucket, name = self._split(self._strip_protocol(path))
        if bucket is None or not name:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return bucket.object(name)

    def _file_info(self, path: str) -> Info:
        info = self.info(path)
        if info["type"] != "file":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return info

    def _why_missing(self, path: str) -> OSError:
        """Why there is no object of this name."""
        item = self.object_of(path)
        if has_anything(item.bucket, item.name):
            return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return NotFound(f"{item.uri} does not exist")

    def _each(self, function: Callable[[Any], None], items: Iterable[Any]) -> None:
        """Calls the function for each item, several at a time; the first failure is raised."""
        known = list(items)
        if len(known) < 2:
            for item in known:
                function(item)
            return
        with ThreadPoolExecutor(min(MAX_CONCURRENT_CALLS, len(known)), "forebay-fsspec") as threads:
            for _ in threads.map(carried(function), known):
                pass
