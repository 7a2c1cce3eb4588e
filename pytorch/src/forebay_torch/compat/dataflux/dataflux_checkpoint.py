"""Checkpoints under Dataflux's names."""

from __future__ import annotations

from typing import Any

from forebay_torch.checkpoint import Checkpoint
from forebay_torch.compat.dataflux.dataflux_mapstyle_dataset import cloud_uri, cluster_client

__all__ = ["DatafluxCheckpoint"]


class DatafluxCheckpoint(Checkpoint):
    """Files for ``torch.save`` and ``torch.load``. Nothing is staged in memory, and a ``with`` block
    that ends by an exception stores nothing.

    Args:
        project_name: Accepted for compatibility, unused.
        bucket_name: ``name`` of a bucket of Google Cloud Storage, or a URI.
        storage_client: A ``forebay.Client``; any other is left unused, with a warning.
        options: Those of Checkpoint.
    """

    def __init__(
        self, project_name: str, bucket_name: str, storage_client: Any = None, **options: Any
    ) -> None:
        super().__init__(
            project_name, cloud_uri(bucket_name), cluster_client(storage_client), **options
        )
