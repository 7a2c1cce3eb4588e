"""The client configuration of ``s3torchconnector``."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["S3ClientConfig"]


@dataclass(frozen=True, slots=True)
class S3ClientConfig:
    """How the bucket is read.

    ``max_attempts`` goes with the requests: targets try the cloud so often. ``part_size`` is that of
    checkpoints, from 1 byte on. The rest is kept for compatibility: how the cluster speaks to a bucket
    is the bucket's setting.
    """

    throughput_target_gbps: float = 10.0
    part_size: int = 8 << 20
    unsigned: bool = False
    force_path_style: bool = False
    max_attempts: int = 10
    profile: str | None = None
    requester_pays: bool = False
