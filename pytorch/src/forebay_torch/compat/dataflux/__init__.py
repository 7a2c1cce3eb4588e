"""The names of ``dataflux_pytorch``.

    from forebay_torch.compat.dataflux import dataflux_mapstyle_dataset

A ``bucket_name`` without a scheme is a bucket of Google Cloud Storage, which the cluster reads with
credentials of its own. Class names work in both of their spellings. Checkpoints are in
``dataflux_checkpoint``, those of Lightning and of ``torch.distributed`` in ``lightning``.
"""

from __future__ import annotations

from forebay_torch.compat.dataflux import (
    dataflux_checkpoint,
    dataflux_iterable_dataset,
    dataflux_mapstyle_dataset,
)
from forebay_torch.compat.dataflux.dataflux_checkpoint import DatafluxCheckpoint
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
    "DatafluxCheckpoint",
    "DatafluxIterableDataset",
    "DatafluxMapStyleDataset",
    "dataflux_checkpoint",
    "dataflux_iterable_dataset",
    "dataflux_mapstyle_dataset",
]
