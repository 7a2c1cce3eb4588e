"""Checkpoints of torch.save, written to and read from the cluster."""

from __future__ import annotations

import io
import os
import warnings
import zipfile
from collections.abc import Sequence
from typing import Any, BinaryIO

import torch

from forebay import Client, NodeCache, Object, RangeReader, Writer
from forebay_torch.checkpoint.catalog import catalog, remove_all
from forebay_torch.checkpoint.in_flight import InFlight, SaveFuture
from forebay_torch.checkpoint.location import Location, StrPath, locate, uri_of
from forebay_torch.checkpoint.mapped_file import mapped_file
from forebay_torch.checkpoint.snapshot import snapshot
from forebay_torch.checkpoint.write_back import WriteBack, WrittenBackWriter, in_order

__all__ = ["Checkpoint"]

# A writer keeps so many parts beside those that are on their way: one to fill, one to hand over.
_PARTS_IN_MEMORY = 2


class Checkpoint:
    """Files for ``torch.save`` and ``torch.load`` that are objects of the cluster.

    A checkpoint is sent in parts while ``torch.save`` runs. It exists, whole, when the ``with``
    block was left without an exception; until then, and after any failure, the checkpoint that was
    there before stays. ``torch.load`` reads by ranges, which are fetched ahead of it.

    Paths are names in the bucket, or URIs: ``ais://``, ``fb://``, ``s3://``, ``gs://``,
    ``gcs://``, ``az://``, as text or as a ``Path``.

    Args:
        project_name: Accepted for compatibility, unused.
        bucket_name: Name or URI of the bucket for paths that are no URIs; a URI may go on with a
            folder in it.
        storage_client: A ``forebay.Client``; by default one from the environment.
        region: Accepted for compatibility, with ``endpoint``.
        part_size: Bytes of a part, 16 MiB by default.
        concurrency: Parts in memory at most while one checkpoint is written, at least 3; and
            requests at once while one is read.
        write_back: URI of a bucket of a cloud, or of a folder in one. A checkpoint in a native bucket
            is then written there by a job of the cluster, under its own name; if it is pruned or
            removed here, it is removed there too. A save does not wait for that: ``wait_written_back`` does.
        node_cache: A folder that the processes of a machine share. ``load`` and ``resume_latest`` then
            fetch a checkpoint once for all of them, as a whole, and read it from the page cache.

    Raises:
        ValueError: A number makes no sense, or the bucket's kind is unknown.
        NotFound: The cluster has no such native bucket; the message names it.

    Example:
        >>> checkpoint = Checkpoint(bucket_name="checkpoints")
        >>> with checkpoint.writer("epoch-0.pt") as writer:
        ...     torch.save(model.state_dict(), writer)
        >>> with checkpoint.reader("epoch-0.pt") as reader:
        ...     model.load_state_dict(torch.load(reader, weights_only=True))
    """

    def __init__(
        self,
        project_name: str | None = None,
        bucket_name: str | None = None,
        storage_client: Client | None = None,
        *,
        region: str | None = None,
        endpoint: str | None = None,
        part_size: int = 16 << 20,
        concurrency: int = 8,
        write_back: str | None = None,
        node_cache: NodeCache | None = None,
    ) -> None:
        if part_size < 1:
            raise ValueError(f"part_size must be at least 1, not {part_size}")
        if concurrency <= _PARTS_IN_MEMORY:
            raise ValueError(
                f"concurrency must be at least {_PARTS_IN_MEMORY + 1}, not {concurrency}: one part "
                "is filled, one handed over, and the others are on their way"
            )
        self.project_name = project_name
        self.client = storage_client or Client()
        self.part_size = part_size
        self.concurrency = concurrency
        self._base: Location | None = None
        if bucket_name is not None:
            self._base = Location(*self.client.bucket_of(uri_of(bucket_name) or bucket_name))
            if self._base.bucket.provider == "ais":
                # Now, rather than after the first steps of a training. Changes in a cloud are seen when
                # it is asked.
                self._base.bucket.head()
        self._in_flight = InFlight()
        self._write_back = None if write_back is None else WriteBack(write_back)
        self._node_cache = node_cache

    def writer(self, path: StrPath) -> Writer:
        """A file whose content becomes the checkpoint when it is closed.

        Leaving its ``with`` block by an exception stores nothing. ``write`` and ``close`` raise the
        ``ForebayError`` of a part that could not be stored.
        """
        target, ahead = self.object(path), self.parts_ahead
        if self._write_back is not None:
            return WrittenBackWriter(self._write_back, target, ahead, self.part_size)
        return Writer(target, ahead, part_size=self.part_size)

    @property
    def parts_ahead(self) -> int:
        """Parts that a writer has on their way at most."""
        return self.concurrency - _PARTS_IN_MEMORY

    def reader(self, path: StrPath) -> RangeReader:
        """The checkpoint as a seekable file; nothing is asked for before the first read.

        Raises:
            forebay.NotFound: At the first read: it is not there; or later: it was deleted.
            forebay.ObjectChanged: At a read: it was replaced since the first one.
        """
        return self.object(path).get_range_reader(num_workers=self.concurrency)

    def object(self, path: StrPath) -> Object:
        """The object that a path stands for."""
        return self._locate(path).object()

    def uri(self, path: StrPath) -> str:
        """The path as a URI."""
        return self._locate(path).uri

    def save(self, obj: Any, path: StrPath) -> str:
        """Saves ``obj`` by ``torch.save``; returns the URI of the checkpoint."""
        with self.writer(path) as writer:
            torch.save(obj, writer)
        return self.uri(path)

    def load(self, path: StrPath, map_location: Any = None, *, weights_only: bool = True) -> Any:
        """Loads the object that was saved under this path, by ``torch.load``.

        Args:
            map_location: As for ``torch.load``.
            weights_only: As for ``torch.load``.
        """
        with self._open(path) as file:
            return torch.load(file, map_location, weights_only=weights_only)

    def save_async(self, obj: Any, path: StrPath) -> SaveFuture:
        """As ``save``, in the background: training may go on, and change ``obj``.

        Its tensors are copied to the memory of the CPU before this returns. One save is under way
        at a time; the next waits for it. A program that ends waits for its last save.

        Returns:
            A ``concurrent.futures.Future`` of the URI.

        Raises:
            Exception: The error of the save before, unless ``result()`` or ``exception()`` reported
                it; nothing is saved then.
        """
        self._in_flight.wait()
        place = self._locate(path)
        place.object()
        copied = snapshot(obj)
        return self._in_flight.start(lambda: self.save(copied, place.uri))

    def wait(self) -> None:
        """Waits for the save in the background.

        Raises:
            Exception: Its error, unless that was reported.
        """
        self._in_flight.wait()

    def write_back(self, path: StrPath) -> None:
        """Writes a checkpoint back: one of another program, or a folder of
        ``torch.distributed.checkpoint``, which is whole there when this returns.

        Raises:
            ValueError: This Checkpoint has no ``write_back``, or the path is a whole bucket.
            ForebayError: Not all of a folder can be written there; what makes it whole is not, then.
        """
        if self._write_back is None:
            raise ValueError("this Checkpoint was made without write_back=")
        place = self._locate(path)
        under = place.under()
        if not under:
            raise ValueError(f"{os.fspath(path)!r} is a whole bucket, not a checkpoint in it")
        steps = in_order(place.bucket.list_snapshot(under).names())
        if not steps:
            self._write_back.send(place.bucket, [place.object().name])
        for step in steps:
            job = self._write_back.send(place.bucket, step)
            if job is not None:
                job.wait()

    def wait_written_back(self, timeout: float | None = None) -> None:
        """Returns when all that was saved is in the cloud, too.

        Raises:
            Timeout: It is not after so many seconds.
            ForebayError: The cloud does not take it. It is still in its native bucket, and is tried
                again with the next save.
        """
        self._in_flight.wait()
        if self._write_back is not None:
            self._write_back.wait(timeout)

    def latest(self, prefix: StrPath = "") -> str | None:
        """The path of the newest whole checkpoint whose name begins so; None where there is none.

        A checkpoint is an object that is named ``.ckpt``, ``.pt``, ``.pth``, ``.bin`` or
        ``.safetensors``, or a folder of ``torch.distributed.checkpoint``. The newest has the
        greatest name; numbers count as numbers, so ``step=10`` comes after ``step=9``.
        """
        place = self._locate(prefix)
        whole = [entry for entry in catalog(place) if entry.is_whole]
        return self._path(prefix, place, whole[-1].name) if whole else None

    def prune(self, prefix: StrPath = "", keep: int = 1) -> list[str]:
        """Deletes all but the ``keep`` newest whole checkpoints whose names begin so.

        Files of folders that were never finished are deleted too, if they are older than the newest
        whole checkpoint.

        Returns:
            The paths of what was deleted.
        """
        if keep < 1:
            raise ValueError(f"keep must be at least 1, not {keep}")
        place = self._locate(prefix)
        entries = catalog(place)
        whole = [entry for entry in entries if entry.is_whole]
        if not whole:
            return []
        kept = {entry.name for entry in whole[-keep:]}
        gone = [
            entry
            for entry in entries
            if entry.name not in kept and entry.order < whole[-1].order
        ]
        for entry in gone:
            self._remove_all(place, entry.objects)
        return [self._path(prefix, place, entry.name) for entry in gone]

    def resume_latest(
        self, prefix: StrPath = "", map_location: Any = None, *, weights_only: bool = True
    ) -> tuple[str, Any] | None:
        """Path and content of the newest checkpoint that can be loaded; None where there is none.

        Files that end in their middle, as other tools leave them, are passed over with a warning.

        Raises:
            ValueError: The newest is a folder of ``torch.distributed.checkpoint``, which is loaded
                into a state that is there; take ``latest()`` and ``forebay_torch.dcp``.
        """
        place = self._locate(prefix)
        for entry in reversed(catalog(place)):
            if not entry.is_whole:
                continue
            path = self._path(prefix, place, entry.name)
            if entry.is_folder:
                raise ValueError(
                    f"{path!r} is a folder of torch.distributed.checkpoint: load it by "
                    "torch.distributed.checkpoint.load(state, "
                    "storage_reader=forebay_torch.dcp.StorageReader(path))"
                )
            with self._open(path) as file:
                if _is_cut(file):
                    warnings.warn(f"{path!r} ends in its middle; passed over", stacklevel=2)
                    continue
                return path, torch.load(file, map_location, weights_only=weights_only)
        return None

    def remove(self, path: StrPath) -> None:
        """Deletes a checkpoint: an object, or a folder with all in it; nothing if it is not there."""
        place = self._locate(path)
        if place.name and not place.name.endswith("/"):
            self._remove_all(place, [place.name])
        under = place.under()
        if not under:
            raise ValueError(f"{os.fspath(path)!r} is a whole bucket, not a checkpoint in it")
        self._remove_all(place, list(place.bucket.list_snapshot(under).names()))

    def _open(self, path: StrPath) -> BinaryIO:
        """The checkpoint as a seekable file: read by ranges, or from the cache of the node."""
        if self._node_cache is None:
            return self.reader(path)
        return mapped_file(self._node_cache.get(self.object(path)))

    def _remove_all(self, place: Location, names: Sequence[str]) -> None:
        remove_all(place.bucket, names)
        if self._write_back is not None:
            self._write_back.remove(place.bucket, names)

    def _locate(self, path: StrPath) -> Location:
        return locate(path, self.client, self._base)

    def _path(self, given: StrPath, place: Location, name: str) -> str:
        """The path of an object, in the form that the caller writes paths in."""
        if uri_of(given) is not None or self._base is None:
            return Location(place.bucket, name).uri
        return name.removeprefix(self._base.under())

    def __repr__(self) -> str:
        where = f"{self._base.uri!r}" if self._base else "paths that are URIs"
        return f"Checkpoint({where})"


def _is_cut(file: BinaryIO) -> bool:
    """Whether a file begins as torch.save writes it and does not end so."""
    begins = file.read(2) == b"PK"
    whole = not begins or zipfile.is_zipfile(file)
    size = file.seek(0, io.SEEK_END)
    file.seek(0, io.SEEK_SET)
    return not whole or size == 0
