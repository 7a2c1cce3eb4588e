"""Shards that do not come from the cluster as they are stored: unpacked here, from memory."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from typing import Literal

from forebay import InvalidArgument, member_text, split_member

__all__ = ["InMemoryShard", "members_of"]


def members_of(uri: str, content: memoryview) -> Iterator[tuple[str, bytes]]:
    """The files in an archive in memory, TAR (also gzip, bzip2, xz) or ZIP, as ``(name, bytes)``.

    Raises:
        InvalidArgument: It is neither, or it is damaged; the message has ``uri``.
    """
    file = io.BytesIO(content)
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                for info in archive.infolist():
                    if not info.is_dir():
                        yield info.filename, archive.read(info)
            return
        file.seek(0)
        with tarfile.open(
            fileobj=file, mode="r:*", encoding="utf-8", errors="surrogateescape"
        ) as tar:
            for member in tar:
                opened = tar.extractfile(member) if member.isfile() else None
                if opened is not None:
                    yield member_text(_raw(member.name)), opened.read()
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise InvalidArgument(f"{uri}: what the transform made is no archive: {error}") from None


def _raw(name: str) -> bytes:
    """The bytes of a name that ``tarfile`` decoded."""
    return name.encode("utf-8", "surrogateescape")


class InMemoryShard(Iterator[tuple[str, dict[str, bytes]]]):
    """The samples of an archive that is read as a whole when its first sample is asked for.

    Attributes:
        uri: Of the shard.
    """

    def __init__(
        self,
        uri: str,
        load: Callable[[], memoryview],
        keys: Literal["webdataset", "basename"],
        lowercase: bool,
    ) -> None:
        self.uri = uri
        self._load = load
        self._keys: Literal["webdataset", "basename"] = keys
        self._lowercase = lowercase
        self._samples: Iterator[tuple[str, dict[str, bytes]]] | None = None

    def __next__(self) -> tuple[str, dict[str, bytes]]:
        if self._samples is None:
            self._samples = self._grouped()
        return next(self._samples)

    def close(self) -> None:
        """Lets go of the content."""
        self._samples = iter(())

    def _grouped(self) -> Iterator[tuple[str, dict[str, bytes]]]:
        key = ""
        parts: dict[str, bytes] = {}
        for name, content in members_of(self.uri, self._load()):
            split = split_member(name, self._keys, self._lowercase)
            if split is None:
                continue
            if split[0] != key and parts:
                yield key, parts
                parts = {}
            key = split[0]
            parts[split[1]] = content
        if parts:
            yield key, parts
