"""PyTorch datasets and samplers that read from a Forebay cluster.

    from torch.utils.data import DataLoader
    from forebay_torch import DynamicBatchSampler, MapDataset

    dataset = MapDataset("ais://images/train/")
    sampler = DynamicBatchSampler(dataset, max_batch_size=4_000_000, shuffle=True)
    for names, contents in DataLoader(dataset, batch_sampler=sampler, num_workers=2):
        ...

    shards = ShardReader("ais://shards/", shuffle_shards=True)
    for keys, contents in DataLoader(shards, batch_size=60, num_workers=4):
        ...
"""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError(
        "forebay_torch needs PyTorch: pip install torch (or pip install 'forebay-torch[torch]')"
    ) from None

import forebay as _forebay

__version__ = "0.1.0"

if _forebay.__version__ != __version__:
    raise ImportError(
        f"forebay_torch {__version__} does not go with forebay {_forebay.__version__}; "
        "install both from the same version: pip install ./sdk ./pytorch"
    )

from forebay_torch.batch_iter_dataset import BatchIterDataset
from forebay_torch.checkpoint import Checkpoint, SaveFuture, TensorFile, save_tensors
from forebay_torch.collate import ByteBatch, collate
from forebay_torch.config import Config
from forebay_torch.decode import Decoder
from forebay_torch.fields import Fields
from forebay_torch.iter_dataset import BaseIterDataset, IterableDataset, IterDataset
from forebay_torch.loader_stats import LoaderStats
from forebay_torch.map_dataset import BaseMapDataset, MapDataset
from forebay_torch.mixed_dataset import MixedDataset
from forebay_torch.multi_shard_stream import DataShard, MultiShardStream
from forebay_torch.observed_loader import ObservedLoader, observe
from forebay_torch.parallel_map_dataset import ParallelMapDataset
from forebay_torch.policy import DatasetStats
from forebay_torch.prefetch import prefetch_order
from forebay_torch.resume import resume_state
from forebay_torch.sampler import DynamicBatchSampler
from forebay_torch.shard_map_dataset import ShardMapDataset
from forebay_torch.shard_reader import ShardReader
from forebay_torch.shard_sampler import DistributedShardSampler
from forebay_torch.simulate import Simulation, simulate
from forebay_torch.thread_loader import ThreadLoader
from forebay_torch.writers import ShardWriter, TarWriter

__all__ = [
    "MapDataset",
    "ParallelMapDataset",
    "IterableDataset",
    "IterDataset",
    "ShardReader",
    "ShardMapDataset",
    "BatchIterDataset",
    "MultiShardStream",
    "MixedDataset",
    "Decoder",
    "DataShard",
    "Fields",
    "BaseMapDataset",
    "BaseIterDataset",
    "DynamicBatchSampler",
    "DistributedShardSampler",
    "ThreadLoader",
    "LoaderStats",
    "ObservedLoader",
    "observe",
    "ByteBatch",
    "collate",
    "ShardWriter",
    "TarWriter",
    "Checkpoint",
    "SaveFuture",
    "TensorFile",
    "save_tensors",
    "Simulation",
    "simulate",
    "prefetch_order",
    "resume_state",
    "DatasetStats",
    "Config",
    "__version__",
]
