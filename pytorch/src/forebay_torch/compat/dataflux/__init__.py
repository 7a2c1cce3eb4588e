"""The names of ``dataflux_pytorch``.

    from forebay_torch.compat.dataflux import dataflux_mapstyle_dataset

A ``bucket_name`` without a scheme is a bucket of Google Cloud Storage, which the cluster reads with
credentials of its own. Class names work in both of their spellings.
"""

from __future__ import annotations

from forebay_torch.compat.dataflux import dataflux_iterable_dataset, dataflux_mapstyle_dataset
from forebay_torch.compat.dataflux.dataflux_iterable_dataset import (
    DataFluxIterableDataset,
    DatafluxIterableDataset,
)
from forebay_torch.compat.dataflux.dataflux_mapstyle_dataset import (
    Config,
    DataFluxMapStyleDataset,
    DatafluxMapStyleDataset,
)

__all__ = [
    "Config",
    "DataFluxIterableDataset",
    "DataFluxMapStyleDataset",
    "DatafluxIterableDataset",
    "DatafluxMapStyleDataset",
    "dataflux_iterable_dataset",
    "dataflux_mapstyle_dataset",
]
