"""The map-style dataset under Dataflux's names."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from forebay import Client
from forebay_torch.config import Config
from forebay_torch.map_dataset import MapDataset

__all__ = ["Config", "DataFluxMapStyleDataset", "DatafluxMapStyleDataset"]


class DataFluxMapStyleDataset(MapDataset):
    """Samples are the contents of the objects, or what ``data_format_fn`` makes of them.

    Args:
        project_name: The project that reads count for; see MapDataset.
        bucket_name: ``name`` of a bucket of Google Cloud Storage, or a URI.
        config: Settings; the dataset composes nothing in the bucket.
        data_format_fn: Called with each content in the worker; its result is the sample.
        storage_client: A ``forebay.Client``; any other is left unused, with a warning.
        options: Those of MapDataset, such as ``on_error``.
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


DatafluxMapStyleDataset = DataFluxMapStyleDataset


def cloud_uri(bucket_name: str) -> str:
    """The bucket as a URI; without a scheme it is one of Google Cloud Storage."""
    return bucket_name if "://" in bucket_name else f"gs://{bucket_name}"


def cluster_client(storage_client: Any) -> Client | None:
    """The client, if it is one of a cluster."""
    if storage_client is None or isinstance(storage_client, Client):
        return storage_client
    warnings.warn(
        f"storage_client of type {type(storage_client).__name__} is not used: the cluster reads "
        "the bucket, with its own credentials",
        stacklevel=3,
    )
    return None
