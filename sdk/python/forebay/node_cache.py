"""Objects kept on a node, for all its processes: the first process fetches an object, the others wait."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from forebay.object import Object

__all__ = ["NodeCache"]

_LOOK_EVERY_S = 0.005


class NodeCache:
    """A folder of objects, limited in size, that all processes of a node share.

    N workers that read the same shard fetch it once; what they get are views of the same memory,
    the page cache's. All agreement is by locks of the system: a process that is killed leaves
    nothing that must be cleaned up by hand, and what it had half written is overwritten.

    Args:
        folder: Where the files are; the same for all processes that share them, on a local disk.
        limit: Most bytes of all files together. The least recently used file is removed first; a view
            that is still held stays readable after that.
        check: Whether each use asks the cluster for the object's version, by one small request, so
            that a changed object is fetched anew. Without it a file is used as long as it is there.

    Example:
        >>> cache = NodeCache("/var/tmp/shards", limit=50 << 30)      # doctest: +SKIP
        >>> view = cache.get(bucket.object("train-0001.tar"))         # doctest: +SKIP
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, limit: int = 20 << 30, check: bool = True
    ) -> None:
        if limit < 1:
            raise ValueError(f"limit must be at least one byte, not {limit}")
        self.folder = Path(folder).absolute()
        self.limit = limit
        self.check = check

    def get(self, item: Object) -> memoryview:
        """The content of an object, read-only; fetched if no process of this node has done so.

        Raises:
            NotFound: There is no such object.
            OSError: The folder cannot be written, or the disk is full.
        """
        key = hashlib.sha256(f"{item.bucket.client.endpoint} {item.uri}".encode()).hexdigest()
        self.folder.mkdir(parents=True, exist_ok=True)
        version = self._version(item) if self.check else None
        with _lock(self.folder / f"{key}.lock"):
            while True:
                path = self._find(key, version) or self._fetch(item, key, version)
                # Others who need room may remove it before it is open.
                with contextlib.suppress(FileNotFoundError):
                    return _view(path)

    def size(self) -> int:
        """Bytes of all files now."""
        return sum(size for _, size, _ in self._files())

    @staticmethod
    def _version(item: Object) -> str:
        props = item.head()
        text = f"{props.size} {props.version} {props.etag} {props.checksum}"
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def _find(self, key: str, version: str | None) -> Path | None:
        for path in self.folder.glob(f"{key}.*.data"):
            if version is None or path.name == f"{key}.{version}.data":
                return path
            path.unlink(missing_ok=True)
        return None

    def _fetch(self, item: Object, key: str, version: str | None) -> Path:
        part = self.folder / f"{key}.part"
        try:
            with part.open("wb") as file:
                for piece in item.get():
                    file.write(piece)
                size = file.tell()
            self._make_room(size)
            path = self.folder / f"{key}.{version or 'any'}.data"
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        return path

    def _make_room(self, size: int) -> None:
        """Removes what was used least lately until so many bytes more fit."""
        with _lock(self.folder / "room.lock"):
            files = sorted(self._files())
            total = sum(size for _, size, _ in files) + size
            for _, freed, path in files:
                if total <= self.limit:
                    break
                path.unlink(missing_ok=True)
                total -= freed

    def _files(self) -> Iterator[tuple[int, int, Path]]:
        """Yields the time of the last use of each file (ns), its size and its path."""
        for path in self.folder.glob("*.data"):
            with contextlib.suppress(FileNotFoundError):
                found = path.stat()
                yield found.st_mtime_ns, found.st_size, path

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NodeCache):
            return NotImplemented
        return self._settings() == other._settings()

    def __hash__(self) -> int:
        return hash(self._settings())

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, self._settings()

    def _settings(self) -> tuple[Path, int, bool]:
        return self.folder, self.limit, self.check

    def __repr__(self) -> str:
        return f"NodeCache({str(self.folder)!r}, limit={self.limit})"


def _make(folder: Path, limit: int, check: bool) -> NodeCache:
    return NodeCache(folder, limit=limit, check=check)


def _view(path: Path) -> memoryview:
    """The content of a file that was used just now."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        view = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) if size else b""
    # Said by us: the system's own time of a change is milliseconds coarse.
    now = time.time_ns()
    with contextlib.suppress(FileNotFoundError):
        os.utime(path, ns=(now, now))
    return memoryview(view)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """No other process or thread of this node is in here for this file."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                # One open file, one owner: threads exclude each other as processes do.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES, errno.EINTR):
                    raise
                time.sleep(_LOOK_EVERY_S)
        yield
    finally:
        # Said aloud: a child that was forked meanwhile has the open file too.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)
