"""The names of ``s3torchconnector``.

    from forebay_torch.compat.s3 import S3MapDataset

The cluster reads the buckets, with the region, endpoint and credentials that it has for them; what is
said of those here is accepted and not used.
"""

from __future__ import annotations

from forebay import ForebayError
from forebay_torch.compat.s3.checkpoint import S3Checkpoint, S3Writer
from forebay_torch.compat.s3.config import S3ClientConfig
from forebay_torch.compat.s3.dataset import S3IterableDataset, S3MapDataset
from forebay_torch.compat.s3.reader import S3Reader, S3ReaderConstructor

__all__ = [
    "S3Checkpoint",
    "S3ClientConfig",
    "S3Exception",
    "S3IterableDataset",
    "S3MapDataset",
    "S3Reader",
    "S3ReaderConstructor",
    "S3Writer",
]

S3Exception = ForebayError
