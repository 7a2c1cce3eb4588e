"""Shards written to the cluster as they are made."""

from __future__ import annotations

import io
import tarfile
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from forebay import Bucket, Client, Object, member_bytes
from forebay_torch.encode import encoded_parts

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
        self._tar: tarfile.TarFile | None = tarfile.open(
            fileobj=self._file, mode="w", encoding="utf-8", errors="surrogateescape"
        )
        self._keys: set[str] = set()

    @property
    def size(self) -> int:
        """Bytes so far."""
        return int(self._file.tell()) if self._tar is not None else 0

    def write(self, sample: Mapping[str, Any]) -> int:
        """Adds a sample; returns the bytes that it has.

        Args:
            sample: ``__key__`` and, by extension, its parts: bytes as they are, texts in UTF-8,
                numbers (also of numpy and torch) as text. By the ending of the extension: for
                ``json`` what JSON can hold, arrays and tensors too; for ``npy`` arrays and tensors,
                for ``npz`` dicts of them; for ``pt`` what ``torch.save`` takes; for ``jpg``, ``png``
                and other images a picture of Pillow, or an array or tensor as Decoder gives it.

        Raises:
            ValueError: There is no ``__key__``, or it came before in this shard, or a reader would
                cut a name elsewhere than behind it: a key has no dot behind its last slash; or the
                writer was closed.
            TypeError: A part is none of these.
        """
        self._check_open()
        return self.add(*encoded_parts(sample))

    def add(self, key: str, parts: Mapping[str, bytes]) -> int:
        """Adds a sample whose parts are bytes already; else as ``write``."""
        tar = self._check_open()
        if key in self._keys:
            raise ValueError(f"the key {key!r} came before in {self.target.uri}")
        for extension, content in parts.items():
            # A name that was read from a shard has the bytes again that it had there.
            name = member_bytes(f"{key}.{extension}").decode("utf-8", "surrogateescape")
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode = len(content), int(time.time()), 0o444
            tar.addfile(info, io.BytesIO(content))
        self._keys.add(key)
        self.samples += 1
        return sum(map(len, parts.values()))

    def _check_open(self) -> tarfile.TarFile:
        if self._tar is None:
            raise ValueError(f"the writer of {self.target.uri} was closed")
        return self._tar

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
        key, parts = encoded_parts(sample)
        size = sum(map(len, parts.values()))
        if self._shard is not None and (
            self._shard.samples >= self._most[0] or self._shard.size + size > self._most[1]
        ):
            self._finish()
        if self._shard is None:
            self._shard = TarWriter(self._bucket.object(self._pattern % self._number))
            self._number += 1
        self._shard.add(key, parts)

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
