"""Storage writers and readers of ``torch.distributed.checkpoint``, for checkpoints in the cluster.

    import torch.distributed.checkpoint as dcp
    from forebay_torch.dcp import StorageReader, StorageWriter, async_save

    dcp.save(state, storage_writer=StorageWriter("s3://checkpoints/step-100"))
    dcp.load(state, storage_reader=StorageReader("s3://checkpoints/step-100"))
    saving = async_save(state, storage_writer=StorageWriter("s3://checkpoints/step-200"))
"""

from forebay_torch.dcp.background import async_save
from forebay_torch.dcp.file_system import FileSystem
from forebay_torch.dcp.prefix import (
    BinaryPrefixStrategy,
    DefaultPrefixStrategy,
    HexPrefixStrategy,
    NumericPrefixStrategy,
    PrefixStrategy,
    RoundRobinPrefixStrategy,
)
from forebay_torch.dcp.reader import StorageReader
from forebay_torch.dcp.writer import StorageWriter

__all__ = [
    "StorageWriter",
    "StorageReader",
    "FileSystem",
    "async_save",
    "PrefixStrategy",
    "DefaultPrefixStrategy",
    "NumericPrefixStrategy",
    "BinaryPrefixStrategy",
    "HexPrefixStrategy",
    "RoundRobinPrefixStrategy",
]
