"""The cluster as the file system that torch.distributed.checkpoint writes to and reads from."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystemBase

from forebay import NotFound, Object, ObjectProps
from forebay_torch.checkpoint import Checkpoint
from forebay_torch.checkpoint.location import StrPath, locate, uri_of

__all__ = ["FileSystem", "InFolder", "Planned"]

_SCHEMES = ("ais", "fb", "forebay", "s3", "aws", "gs", "gcs", "gcp", "az", "azure", "ht")
_PIECE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Planned:
    """The ranges of a file that will be read: ``(start, end)`` in order, all of this version."""

    props: ObjectProps
    ranges: Sequence[tuple[int, int]]


class FileSystem(FileSystemBase):
    """Files are objects, paths are URIs; folders exist by their files.

    A file that is written is there when its stream was left without an exception.

    Args:
        checkpoint: How files are written and read.
    """

    def __init__(self, checkpoint: Checkpoint | None = None) -> None:
        self.checkpoint = checkpoint or Checkpoint()
        self._plan: Mapping[str, Planned] = {}
        self._failures: list[BaseException] = []
        self._lock = threading.Lock()

    @contextmanager
    def create_stream(self, path: StrPath, mode: str) -> Iterator[io.IOBase]:
        """The file at ``path``, ``rb`` or ``wb``.

        Raises:
            ValueError: Another mode.
        """
        if mode == "wb":
            try:
                with self.checkpoint.writer(path) as writer:
                    yield writer
            except BaseException as error:
                with self._lock:
                    self._failures.append(error)
                raise
        elif mode == "rb":
            item = self._object(path)
            planned = self._plan.get(item.uri)
            with (
                self.checkpoint.reader(path)
                if planned is None
                else item.get_range_reader(props=planned.props, ranges=planned.ranges)
            ) as file:
                yield file
        else:
            raise ValueError(f"mode is rb or wb, not {mode!r}")

    def expect(self, plan: Mapping[str, Planned]) -> None:
        """Sets the ranges that will be read next, by the files' URIs."""
        self._plan = plan

    def head(self, path: StrPath) -> ObjectProps:
        """Returns the properties of a file; ``NotFound`` where there is none."""
        return self._object(path).head()

    def take_failure(self) -> BaseException | None:
        """Returns the first error of a stream, in any thread, since the last call; None if there is none."""
        with self._lock:
            failures, self._failures = self._failures, []
        return failures[0] if failures else None

    def concat_path(self, path: StrPath, suffix: str) -> str:
        """The path of a file in a folder."""
        return f"{self.init_path(path).rstrip('/')}/{suffix}"

    def init_path(self, path: StrPath) -> str:
        """The path as a URI."""
        return locate(path, self.checkpoint.client).uri

    def rename(self, path: StrPath, new_path: StrPath) -> None:
        """Copies a file through this process and deletes the old one. StorageWriter does without."""
        with self.checkpoint.reader(path) as source, self.checkpoint.writer(new_path) as copy:
            while piece := source.read(_PIECE_BYTES):
                copy.write(piece)
        self.rm_file(path)

    def mkdir(self, path: StrPath) -> None:
        """Does nothing: folders exist by their files."""

    def exists(self, path: StrPath) -> bool:
        """Whether there is such a file."""
        try:
            self.head(path)
        except NotFound:
            return False
        return True

    def rm_file(self, path: StrPath) -> None:
        """Deletes a file; nothing if it is not there."""
        self._object(path).delete(missing_ok=True)

    def ls(self, path: StrPath) -> list[str]:
        """The URIs of all files under a folder."""
        place = locate(path, self.checkpoint.client)
        names = place.bucket.list_snapshot(place.under()).names()
        return [f"{place.bucket.uri}/{name}" for name in names]

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: StrPath) -> bool:
        """Whether it is a URI of a bucket."""
        uri = uri_of(checkpoint_id) if isinstance(checkpoint_id, str | os.PathLike) else None
        return uri is not None and uri.partition("://")[0] in _SCHEMES

    def _object(self, path: StrPath) -> Object:
        return locate(path, self.checkpoint.client).object()

    def __getstate__(self) -> dict[str, Any]:
        return {"checkpoint": self.checkpoint}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


class InFolder:
    """Base of readers and writers of a checkpoint: the location of its metadata."""

    path: Any
    _files: FileSystem

    def _get_metadata_path(self, rank: int | None = None) -> Any:
        name = ".metadata" if rank is None else f"__{rank}.metadata"
        return self._files.concat_path(self.path, name)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: StrPath) -> bool:
        """Whether it is a URI of a bucket."""
        return FileSystem.validate_checkpoint_id(checkpoint_id)
