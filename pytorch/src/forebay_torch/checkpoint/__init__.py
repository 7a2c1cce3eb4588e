"""Checkpoints: files of ``torch.save`` in the cluster, never to be seen half.

    from forebay_torch import Checkpoint

    checkpoint = Checkpoint(bucket_name="s3://checkpoints/run-7")
    saving = checkpoint.save_async(model.state_dict(), "step=100.pt")

``forebay_torch.dcp`` has what ``torch.distributed.checkpoint`` takes, ``forebay_torch.lightning``
what Lightning's Trainer does.
"""

from forebay_torch.checkpoint.checkpoint import Checkpoint
from forebay_torch.checkpoint.in_flight import SaveFuture
from forebay_torch.checkpoint.safetensors import TensorFile, save_tensors

__all__ = ["Checkpoint", "SaveFuture", "TensorFile", "save_tensors"]
