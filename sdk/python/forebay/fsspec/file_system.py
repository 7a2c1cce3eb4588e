"""The file system: the bytes of files in and out, and what fsspec asks for besides names."""

from __future__ import annotations

import errno
import functools
import io
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsspec import AbstractFileSystem  # type: ignore[import-untyped]
from fsspec.callbacks import DEFAULT_CALLBACK  # type: ignore[import-untyped]
from fsspec.utils import isfilelike  # type: ignore[import-untyped]

from forebay.errors import NotFound
from forebay.fsspec.names import MAX_CONCURRENT_CALLS, Names
from forebay.fsspec.opened import CachedFile, OpenedFile
from forebay.fsspec.slices import Slice, read_slice, read_slices
from forebay.fsspec.tree import Info, props_of
from forebay.fsspec.written import WrittenFile
from forebay.object import as_bytes
from forebay.range_reader import RangeReader

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from forebay.bucket import Bucket

__all__ = ["ForebayFileSystem"]

# An object up to here is one request; above, ranges or parts go side by side.
_SINGLE_REQUEST_MAX_BYTES = 16 << 20


def _in_thread(name: str) -> Any:
    """The coroutine that waits in a thread for the blocking method of this name."""

    async def call(self: ForebayFileSystem, *args: Any, **kwargs: Any) -> Any:
        return await self._threads.call(getattr(self, name), *args, **kwargs)

    call.__name__ = f"_{name}"
    return call


def _blocking(name: str) -> Any:
    """The method of this name that fsspec has for file systems without asyncio."""
    method = getattr(AbstractFileSystem, name)

    @functools.wraps(method)
    def call(self: ForebayFileSystem, *args: Any, **kwargs: Any) -> Any:
        return method(self, *args, **kwargs)

    return call


class ForebayFileSystem(Names):
    """Buckets as folders, objects as files; ``bucket/folder/name`` is a path.

    Folders are what names have in common up to a ``/``: they need not be made, and an empty one
    does not stay. Listings are not cached: what was written is seen by everybody at once.

    It pickles, may be used from any thread and after a fork, and with ``asynchronous=True`` in a
    loop of one's own, by the methods with an underscore.

    Args:
        endpoint, timeout, ca_file, token: As of :class:`forebay.Client`. fsspec writes them into
            ``to_json``; a token in the environment or in a file is not written.
        provider: The provider of the buckets: ``ais``, ``s3``, ``gs``, ``az``.
        block_size: Bytes of a part of what is written, and most bytes that are read ahead.
        num_workers: Ranges and parts that one file has on their way at once.
        max_concurrency: Most calls that wait at once.

    Raises:
        OSError: Of its standard kinds: ``FileNotFoundError``, ``FileExistsError``,
            ``PermissionError``, ``TimeoutError``, ``ConnectionError``; all are ``ForebayError``, too.
    """

    # Bytes out.

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        """The content, or the part of it that a slice ``[start:end]`` has."""
        try:
            return read_slice((self.object_of(path), start, end), self.num_workers)
        except NotFound:
            raise self._why_missing(path) from None

    def cat(
        self, path: Any, recursive: bool = False, on_error: str = "raise", **kwargs: Any
    ) -> Any:
        """The contents of one or many files: of many as batches, one request per target."""
        paths = self.expand_path(path, recursive=recursive)
        if isinstance(path, str) and paths == [self._strip_protocol(path)]:
            return self.cat_file(paths[0], **kwargs)
        found = dict(zip(paths, self.cat_ranges(paths, kwargs.get("start"), kwargs.get("end"))))
        if recursive:
            # The folders between the files were expanded, too.
            found = {one: c for one, c in found.items() if not isinstance(c, IsADirectoryError)}
        failed = [one for one, content in found.items() if isinstance(content, Exception)]
        if failed and on_error == "raise":
            raise found[failed[0]]
        return {one: c for one, c in found.items() if on_error == "return" or one not in failed}

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[Any]:
        """Parts of many files, as batches: one request per target for up to 4096 parts.

        Args:
            starts, ends: Of each slice, or one number (or None) for all.
            max_gap: Not needed: parts of one file travel together anyhow.
            on_error: ``return`` failures in their places, or ``raise`` the first.
        """
        if not isinstance(paths, list):
            raise TypeError(f"paths must be a list, not {type(paths).__name__}")
        first = list(starts) if isinstance(starts, Iterable) else [starts] * len(paths)
        last = list(ends) if isinstance(ends, Iterable) else [ends] * len(paths)
        if not len(paths) == len(first) == len(last):
            raise ValueError(f"{len(paths)} paths, {len(first)} starts and {len(last)} ends")
        answers: list[Any] = [None] * len(paths)
        wanted: dict[int, Slice] = {}
        for at, path in enumerate(paths):
            try:
                wanted[at] = (self.object_of(path), first[at], last[at])
            except OSError as error:
                answers[at] = error
        for at, answer in zip(wanted, read_slices(self.client, list(wanted.values()))):
            is_missing = isinstance(answer, NotFound)
            answers[at] = self._why_missing(paths[at]) if is_missing else answer
        if on_error == "raise":
            for answer in answers:
                if isinstance(answer, Exception):
                    raise answer
        return answers

    def get_file(
        self,
        rpath: str,
        lpath: Any,
        callback: Any = DEFAULT_CALLBACK,
        outfile: Any = None,
        **kwargs: Any,
    ) -> None:
        """Copies one file here; a failure leaves none behind."""
        info = self.info(rpath)
        file = lpath if outfile is None and isfilelike(lpath) else outfile
        if info["type"] == "directory":
            if file is None:
                os.makedirs(lpath, exist_ok=True)
            return
        callback.set_size(info["size"])
        if file is not None:
            self._fetch(rpath, info, file, callback)
            return
        Path(lpath).parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(lpath, "wb") as own:
                self._fetch(rpath, info, own, callback)
        except BaseException:
            Path(lpath).unlink(missing_ok=True)
            raise

    def _fetch(self, path: str, info: Info, file: Any, callback: Any) -> None:
        item = self.object_of(path)
        with RangeReader(item, window=self.blocksize, props=props_of(item, info)) as reader:
            while piece := reader.read(self.blocksize):
                file.write(piece)
                callback.relative_update(len(piece))

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | str | None = None,
        autocommit: bool = True,
        cache_options: Any = None,
        **kwargs: Any,
    ) -> Any:
        # Some libraries say "default". With 0 nothing is read ahead but a little.
        size = block_size if isinstance(block_size, int) else self.blocksize
        if size < 0:
            raise ValueError(f"block_size must not be negative: {block_size}")
        item = self.object_of(path)
        path = self._strip_protocol(path)
        if mode == "rb":
            info = self._file_info(path)
            if kwargs.get("cache_type") is None:
                return OpenedFile(self, item, path, info, size, kwargs)
            kwargs.pop("size", None)
            block = size or self.blocksize
            return CachedFile(self, path, info, block, cache_options=cache_options, **kwargs)
        if mode == "xb" and self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        if mode in ("wb", "xb"):
            return WrittenFile(self, item, path, size or self.blocksize, autocommit, kwargs)
        raise io.UnsupportedOperation(f"mode {mode!r}: objects are read, or written as a whole")

    # Bytes in.

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        """Stores a content; with ``mode="create"`` only where there is none."""
        item = self.object_of(path)
        if mode == "create" and self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        workers = self.num_workers if memoryview(value).nbytes > _SINGLE_REQUEST_MAX_BYTES else 0
        item.put(value, num_workers=workers)

    def pipe(self, path: str | Mapping[str, Any], value: Buffer | None = None, **kwargs: Any) -> None:
        """Stores one content, or those of a dictionary by their paths, many at a time."""
        if isinstance(path, str):
            if value is None:
                raise TypeError("pipe(path, value) takes the content as value")
            return self.pipe_file(path, value, **kwargs)
        if kwargs:
            return self._each(lambda item: self.pipe_file(*item, **kwargs), path.items())
        groups: dict[Bucket, list[tuple[str, Any]]] = {}
        for one, content in path.items():
            item = self.object_of(one)
            groups.setdefault(item.bucket, []).append((item.name, as_bytes(content)))
        for bucket, items in groups.items():
            bucket.put_many(items, MAX_CONCURRENT_CALLS)

    def put_file(
        self,
        lpath: Any,
        rpath: str,
        callback: Any = DEFAULT_CALLBACK,
        mode: str = "overwrite",
        **kwargs: Any,
    ) -> None:
        """Stores a file from here; a folder becomes nothing, as folders are not kept."""
        if os.path.isdir(lpath):
            return self.makedirs(rpath, exist_ok=True)
        item = self.object_of(rpath)
        if mode == "create" and self.exists(rpath):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), rpath)
        size = os.path.getsize(lpath)
        callback.set_size(size)
        if size <= _SINGLE_REQUEST_MAX_BYTES:
            item.put(os.fspath(lpath))
            callback.relative_update(size)
            return None
        with open(lpath, "rb") as file, item.get_writer(self.num_workers) as writer:
            while piece := file.read(self.blocksize):
                writer.write(piece)
                callback.relative_update(len(piece))
        return None

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        """Makes an empty file; one that is there is left alone with ``truncate=False``."""
        if truncate or not self.exists(path):
            self.object_of(path).put(b"")

    # The form that fsspec makes of these, in the thread of the caller. Its own would wait for other threads,
    # of which there are not arbitrarily many.

    glob, walk, expand_path = map(_blocking, ("glob", "walk", "expand_path"))
    isdir, isfile, du = map(_blocking, ("isdir", "isfile", "du"))

    # The same for loops of asyncio; what is not here fsspec makes of these.

    _info, _exists, _ls, _find = map(_in_thread, ("info", "exists", "ls", "find"))
    _cat_file, _cat, _cat_ranges = map(_in_thread, ("cat_file", "cat", "cat_ranges"))
    _get_file, _put_file = map(_in_thread, ("get_file", "put_file"))
    _pipe_file, _pipe, _cp_file = map(_in_thread, ("pipe_file", "pipe", "cp_file"))
    _rm_file, _rm = map(_in_thread, ("rm_file", "rm"))
    _mkdir, _makedirs = map(_in_thread, ("mkdir", "makedirs"))
