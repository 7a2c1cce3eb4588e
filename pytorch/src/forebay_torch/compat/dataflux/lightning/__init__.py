"""The names of ``dataflux_pytorch.lightning``. Those of distributed checkpoints need no Lightning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forebay_torch.compat.dataflux.lightning.gcs_filesystem import (
    GCSDistributedReader,
    GCSDistributedWriter,
    GCSFileSystem,
)

if TYPE_CHECKING:
    from forebay_torch.compat.dataflux.lightning.dataflux_lightning_checkpoint import (
        DatafluxFSDPStrategy,
        DatafluxLightningAsyncCheckpoint,
        DatafluxLightningCheckpoint,
    )

__all__ = [
    "DatafluxFSDPStrategy",
    "DatafluxLightningAsyncCheckpoint",
    "DatafluxLightningCheckpoint",
    "GCSDistributedReader",
    "GCSDistributedWriter",
    "GCSFileSystem",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from forebay_torch.compat.dataflux.lightning import dataflux_lightning_checkpoint

    return getattr(dataflux_lightning_checkpoint, name)
