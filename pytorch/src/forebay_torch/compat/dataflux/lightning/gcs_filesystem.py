"""Distributed checkpoints under Dataflux's names."""

from __future__ import annotations

from typing import Any

from forebay_torch.checkpoint import Checkpoint
from forebay_torch.checkpoint.location import StrPath
from forebay_torch.compat.dataflux.dataflux_mapstyle_dataset import cluster_client
from forebay_torch.dcp import FileSystem, StorageReader, StorageWriter

__all__ = ["GCSDistributedReader", "GCSDistributedWriter", "GCSFileSystem"]


class GCSFileSystem(FileSystem):
    """Files of ``gs://`` and other buckets.

    Args:
        project_name: Accepted for compatibility, unused, as ``debug``.
        storage_client: A ``forebay.Client``; any other is left unused, with a warning.
    """

    def __init__(
        self, project_name: str | None = None, debug: bool = False, storage_client: Any = None
    ) -> None:
        super().__init__(Checkpoint(project_name, storage_client=cluster_client(storage_client)))

    def __setstate__(self, state: dict[str, Any]) -> None:
        FileSystem.__init__(self, **state)


class _AtPath:
    """A class whose constructor takes Dataflux's arguments for a folder in a bucket."""

    def __init__(
        self,
        path: StrPath,
        project_name: str | None = None,
        storage_client: Any = None,
        debug: bool = False,
        **options: Any,
    ) -> None:
        client = cluster_client(storage_client)
        super().__init__(path, project_name, client, **options)  # type: ignore[call-arg]


class GCSDistributedWriter(_AtPath, StorageWriter):
    """The ``storage_writer`` of a distributed checkpoint.

    Args:
        path: ``gs://`` or ``gcs://``, bucket and folder; other schemes too.
        project_name: Accepted for compatibility, unused, as ``debug``.
        storage_client: A ``forebay.Client``; any other is left unused, with a warning.
        options: Those of StorageWriter.
    """


class GCSDistributedReader(_AtPath, StorageReader):
    """The ``storage_reader`` of a distributed checkpoint; arguments as for GCSDistributedWriter."""
