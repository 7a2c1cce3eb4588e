"""The examples that need a cluster and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys

from forebay_cluster import REPOSITORY, Cluster

import forebay


def test_DF25_a_ddp_job_of_two_gloo_processes_goes_on_with_one(
    bucket: forebay.Bucket, cluster: Cluster
) -> None:
    bucket.put_many((f"train/{i:03}", bytes([i] * (i + 1))) for i in range(101))
    script = str(REPOSITORY / "examples/train_ddp.py")
    done = subprocess.run(
        [sys.executable, script, f"ais://{bucket.name}/train/", "--stop", "3", "--then", "1"],
        env={**os.environ, "FOREBAY_ENDPOINT": cluster.endpoint},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    first, second, both = done.stdout.splitlines()
    assert first.startswith("2 processes, 3 steps: 48 samples")
    assert second.startswith("1 processes, 7 steps: 53 samples")
    assert both == "101 samples in all, 101 of them different"
