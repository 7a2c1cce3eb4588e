"""The iterable dataset under Dataflux's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forebay_torch.compat.dataflux.dataflux_mapstyle_dataset import (
    Config,
    cloud_uri,
    cluster_client,
)
from forebay_torch.iter_dataset import IterableDataset

__all__ = ["Config", "DataFluxIterableDataset", "DatafluxIterableDataset"]


class DataFluxIterableDataset(IterableDataset):
    """Samples are the contents of the objects, or what ``data_format_fn`` makes of them.

    Args:
        project_name: As for MapDataset.
        bucket_name: ``name`` of a bucket of Google Cloud Storage, or a URI.
        config: Settings; the dataset composes nothing in the bucket.
        data_format_fn: Called with each content in the worker; its result is the sample.
        storage_client: A ``forebay.Client``; any other is left unused, with a warning.
        options: Those of IterableDataset, such as ``shuffle`` and ``on_error``.
    """

    def __init__(
        self,
        project_name: str | None,
        bucket_name: str,
        config: Config | None = None,
        data_format_fn: Callable[[Any], Any] | None = None,
        storage_client: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(
            project_name=project_name,
            bucket_name=cloud_uri(bucket_name),
            config=config,
            data_format_fn=data_format_fn,
            storage_client=cluster_client(storage_client),
            **options,
        )


DatafluxIterableDataset = DataFluxIterableDataset
