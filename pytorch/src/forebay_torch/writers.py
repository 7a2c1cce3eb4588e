"""Shards written to the cluster as they are made."""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from forebay import Bucket, Client, Object

__all__ = ["ShardWriter", "TarWriter"]


class TarWriter:
    """One shard. It becomes an object when it is closed, whole or, after an exception, not at all.

    The shard is made in a temporary file and sent from there: memory holds one sample.

    Args:
        target: The object; or a URI such as ``ais://bucket/a.tar``.
        client: For a URI; by default one from the environment.

    Raises:
        ValueError: The URI names no object.

    Example:
        >>> with TarWriter("ais://bucket/train-0.tar") as shard:
        ...     shard.write({"__key__": "0001", "jpg": picture, "cls": 7})
    """

    def __init__(self, target: Object | str, *, client: Client | None = None) -> None:
        if isinstance(target, str):
            bucket, name = (client or Client()).bucket_of(target)
            if not name:
                raise ValueError(f"{target!r} names a bucket, not an object")
            target = bucket.object(name)
        self.target = target
        self.samples = 0
        self._file: Any = tempfile.NamedTemporaryFile(suffix=".tar")  # noqa: SIM115
        self._tar: tarfile.TarFile | None = tarfile.open(fileobj=self._file, mode="w")
        self._keys: set[str] = set()

    @property
    def size(self) -> int:
        """Bytes so far."""
        return int(self._file.tell()) if self._tar is not None else 0

    def write(self, sample: Mapping[str, Any]) -> int:
        """Adds a sample; returns the bytes that it has.

        Args:
            sample: ``__key__`` and, by extension, its parts: bytes as they are, texts in UTF-8,
                numbers as text, other values as JSON where the extension is ``json``.

        Raises:
            ValueError: There is no ``__key__``, or it came before in this shard; or the writer
                was closed.
            TypeError: A part is none of these.
        """
        if self._tar is None:
            raise ValueError(f"the writer of {self.target.uri} was closed")
        key = sample.get("__key__")
        if not isinstance(key, str) or not key:
            raise ValueError('a sample needs its "__key__", a text')
        if key in self._keys:
            raise ValueError(f"the key {key!r} came before in {self.target.uri}")
        parts = {
            extension: _encoded(key, extension, value)
            for extension, value in sample.items()
            if not extension.startswith("__")
        }
        for extension, content in parts.items():
            info = tarfile.TarInfo(f"{key}.{extension}")
            info.size, info.mtime, info.mode = len(content), int(time.time()), 0o444
            self._tar.addfile(info, io.BytesIO(content))
        self._keys.add(key)
        self.samples += 1
        return sum(map(len, parts.values()))

    def close(self) -> None:
        """Stores the shard."""
        tar, self._tar = self._tar, None
        if tar is None:
            return
        try:
            tar.close()
            self._file.flush()
            self.target.put(str(self._file.name))
        finally:
            self._file.close()

    def abort(self) -> None:
        """Stores nothing."""
        if self._tar is not None:
            self._tar = None
            self._file.close()

    def __enter__(self) -> TarWriter:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


class ShardWriter:
    """Samples into shards of a size: a new one begins when the last is full.

    Each shard is an object as soon as it is full, and the last one when the writer is closed. Leaving a
    ``with`` block by an exception drops the shard at hand; those before it stay.

    Args:
        pattern: URI of the shards with a place for their numbers, ``ais://bucket/train-%06d.tar``;
            or names in ``bucket``.
        maxcount: Most samples in a shard.
        maxsize: Most bytes in a shard; a sample that is larger has one of its own.
        bucket: Where the names of ``pattern`` are.
        start: Number of the first shard.
        client: For a URI; by default one from the environment.

    Raises:
        ValueError: The pattern has no place for a number, or a limit makes no sense.

    Example:
        >>> with ShardWriter("ais://shards/train-%06d.tar", maxcount=1000) as writer:
        ...     writer.write({"__key__": "0001", "jpg": picture, "cls": 7})
    """

    def __init__(
        self,
        pattern: str,
        maxcount: int = 100_000,
        maxsize: float = 3e9,
        *,
        bucket: Bucket | None = None,
        start: int = 0,
        client: Client | None = None,
    ) -> None:
        if maxcount < 1 or maxsize < 1:
            raise ValueError(f"maxcount={maxcount} and maxsize={maxsize} must be at least 1")
        if bucket is None:
            bucket, pattern = (client or Client()).bucket_of(pattern)
        try:
            if pattern % 0 == pattern % 1:
                raise ValueError
        except (TypeError, ValueError):
            raise ValueError(
                f"{pattern!r} needs one place for the number of a shard, such as %06d"
            ) from None
        self._bucket = bucket
        self._pattern = pattern
        self._most = (maxcount, maxsize)
        self._number = start
        self._shard: TarWriter | None = None
        self.shards: list[str] = []

    def write(self, sample: Mapping[str, Any]) -> None:
        """Adds a sample, as that of TarWriter."""
        size = sum(len(v) for v in sample.values() if isinstance(v, bytes | bytearray | str))
        if self._shard is not None and (
            self._shard.samples >= self._most[0] or self._shard.size + size > self._most[1]
        ):
            self._finish()
        if self._shard is None:
            self._shard = TarWriter(self._bucket.object(self._pattern % self._number))
            self._number += 1
        self._shard.write(sample)

    def close(self) -> None:
        """Stores the last shard."""
        if self._shard is not None:
            self._finish()

    def _finish(self) -> None:
        shard, self._shard = self._shard, None
        if shard is not None:
            shard.close()
            self.shards.append(shard.target.uri)

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is None:
            self.close()
        elif self._shard is not None:
            self._shard.abort()
            self._shard = None


def _encoded(key: str, extension: str, value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    if extension.rpartition(".")[2] in ("json", "jsn"):
        return json.dumps(value).encode()
    if isinstance(value, int | float):
        return str(value).encode()
    kind = type(value).__name__
    raise TypeError(
        f"{extension!r} of the sample {key!r} is a {kind}: give bytes, text, a number, or json"
    )


