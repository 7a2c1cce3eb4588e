"""What Lightning's Trainer takes to keep its checkpoints in the cluster.

    from lightning import Trainer
    from forebay_torch.lightning import LightningCheckpoint

    trainer = Trainer(plugins=[LightningCheckpoint()], default_root_dir="s3://checkpoints/run-7")
"""

try:
    import lightning as _lightning  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "lightning":
        raise
    raise ImportError(
        "forebay_torch.lightning needs Lightning: pip install lightning "
        "(or pip install 'forebay-torch[lightning]')"
    ) from None

from forebay_torch.lightning.checkpoint_io import LightningAsyncCheckpoint, LightningCheckpoint
from forebay_torch.lightning.fsdp import FSDPStrategy

__all__ = ["LightningCheckpoint", "LightningAsyncCheckpoint", "FSDPStrategy"]
