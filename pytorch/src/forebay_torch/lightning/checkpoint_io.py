"""Lightning's checkpoints in the cluster, written at once or in the background."""

from __future__ import annotations

import os
from typing import Any

import torch
from lightning.pytorch.plugins.io import (  # type: ignore[import-not-found,unused-ignore]
    AsyncCheckpointIO,
    CheckpointIO,
    TorchCheckpointIO,
)

from forebay import Client
from forebay_torch.checkpoint import Checkpoint
from forebay_torch.checkpoint.in_flight import InFlight
from forebay_torch.checkpoint.location import StrPath, uri_of
from forebay_torch.checkpoint.snapshot import snapshot

__all__ = ["LightningAsyncCheckpoint", "LightningCheckpoint"]


class LightningCheckpoint(CheckpointIO):  # type: ignore[misc,unused-ignore]
    """A plugin for ``Trainer(plugins=[...])`` whose checkpoints are objects of the cluster.

    A checkpoint is there whole or not at all. Paths are URIs with ``ais://``, ``fb://``, ``s3://``,
    ``gs://``, ``gcs://`` or ``az://``, as text or as a ``Path``, or names in ``bucket_name``. An
    absolute path is one of this machine, and stays one: a ``ModelCheckpoint`` without a ``dirpath``
    keeps its checkpoints under ``default_root_dir``.

    Args:
        project_name: Accepted for compatibility, unused.
        storage_client: A ``forebay.Client``; by default one from the environment.
        bucket_name: Name or URI of the bucket for paths that are no URIs.
        part_size: As for Checkpoint, with ``concurrency`` and ``write_back``.
    """

    def __init__(
        self,
        project_name: str | None = None,
        storage_client: Client | None = None,
        *,
        bucket_name: str | None = None,
        part_size: int = 16 << 20,
        concurrency: int = 8,
        write_back: str | None = None,
    ) -> None:
        self.checkpoint = Checkpoint(
            project_name,
            bucket_name,
            storage_client,
            part_size=part_size,
            concurrency=concurrency,
            write_back=write_back,
        )
        self._local = TorchCheckpointIO()

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: StrPath, storage_options: Any = None
    ) -> None:
        """Saves what the Trainer gives.

        Raises:
            TypeError: ``storage_options`` are given: there are none.
            ForebayError: It could not be stored; what was there before is.
        """
        check_options(self, storage_options)
        if is_local(path):
            self._local.save_checkpoint(checkpoint, os.fspath(path))
        else:
            self.checkpoint.save(checkpoint, path)

    def load_checkpoint(
        self, path: StrPath, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Loads a checkpoint.

        Args:
            map_location: As for ``torch.load``.
            weights_only: As for ``torch.load``, whose default is that of the installed version.

        Raises:
            NotFound: It is not there.
        """
        if is_local(path):
            with open(path, "rb") as file:
                return _loaded(file, map_location, weights_only)
        with self.checkpoint.reader(path) as reader:
            return _loaded(reader, map_location, weights_only)

    def remove_checkpoint(self, path: StrPath) -> None:
        """Deletes it: an object, or a folder of a sharded checkpoint with all in it."""
        if is_local(path):
            self._local.remove_checkpoint(os.fspath(path))
        else:
            self.checkpoint.remove(path)

    def teardown(self) -> None:
        """Does nothing: no resource is left open."""


class LightningAsyncCheckpoint(AsyncCheckpointIO):  # type: ignore[misc,unused-ignore]
    """As LightningCheckpoint, in the background: a save returns when its tensors were copied.

    One save is under way at a time, the next waits for it. A failure is raised by the next save, or
    by the teardown at the end of ``fit``. A checkpoint that is removed meanwhile, as
    ``ModelCheckpoint`` does with the one before, goes when the save has succeeded, and stays when it
    fails.

    Args:
        project_name: Accepted for compatibility, unused.
        storage_client: A ``forebay.Client``; by default one from the environment.
        checkpoint_io: What saves, instead of a LightningCheckpoint of these arguments.
        options: Those of LightningCheckpoint.
    """

    def __init__(
        self,
        project_name: str | None = None,
        storage_client: Client | None = None,
        *,
        checkpoint_io: Any = None,
        **options: Any,
    ) -> None:
        self._inner: Any = checkpoint_io or LightningCheckpoint(
            project_name, storage_client, **options
        )
        super().__init__(self._inner)
        self._in_flight = InFlight()

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: StrPath, storage_options: Any = None
    ) -> None:
        """Begins to save; ``checkpoint`` may change as soon as this returns.

        Raises:
            Exception: The error of the save before; nothing is saved then.
            TypeError: ``storage_options`` are given: there are none.
        """
        check_options(self, storage_options)
        self._in_flight.wait()
        copied, inner = snapshot(checkpoint), self._inner

        def save() -> str:
            inner.save_checkpoint(copied, path)
            return str(path)

        self._in_flight.start(save)

    def load_checkpoint(self, path: StrPath, *arguments: Any, **options: Any) -> dict[str, Any]:
        """As that of LightningCheckpoint, after the save under way."""
        self._in_flight.wait()
        loaded: dict[str, Any] = self._inner.load_checkpoint(path, *arguments, **options)
        return loaded

    def remove_checkpoint(self, path: StrPath) -> None:
        """Deletes a checkpoint, once the save under way has succeeded."""
        inner = self._inner
        self._in_flight.after(lambda: inner.remove_checkpoint(path))

    def teardown(self) -> None:
        """Waits for the save under way.

        Raises:
            Exception: The error of that save.
        """
        try:
            self._in_flight.wait()
        finally:
            self._inner.teardown()
            super().teardown()


def _loaded(file: Any, map_location: Any, weights_only: bool | None) -> dict[str, Any]:
    loaded: dict[str, Any] = torch.load(file, map_location, weights_only=weights_only)
    return loaded


def is_local(path: StrPath) -> bool:
    """Whether it is an absolute path of this machine."""
    return uri_of(path) is None and os.path.isabs(path)


def check_options(owner: object, storage_options: Any) -> None:
    """Refuses options that nothing would be done with."""
    if storage_options is not None:
        raise TypeError(
            f"{type(owner).__name__}.save_checkpoint() takes no storage_options: where and how "
            "objects are stored is the bucket's setting"
        )
