"""Programs that the documents describe without their code: training by Lightning, and of ResNet-50."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from forebay_cluster import REPOSITORY, binary
from storage import DocumentBucket


def run(bucket: DocumentBucket, script: str, *arguments: str) -> list[str]:
    """The lines that an example prints."""
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "examples" / script), bucket.bucket.uri, *arguments],
        env={
            **os.environ,
            "FOREBAY_ENDPOINT": bucket.bucket.client.endpoint,
            "FOREBAY_BIN": str(binary()),
            # Threads that wait for each other busily take seconds on a machine that builds meanwhile.
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    return done.stdout.splitlines()


def test_lightning_trains_from_a_cloud_and_resumes_its_checkpoint(gs_bucket: DocumentBucket) -> None:
    pytest.importorskip("lightning", reason='PYTHONPATH="$(ci/lightning.sh)" has lightning')
    options = ("--workers", "1", "--batch-size", "16")
    *epochs, newest = run(gs_bucket, "train_lightning.py", "--generate", "96", "--epochs", "2", *options)
    assert [line.partition(", ")[0] for line in epochs] == ["epoch 0: step 6", "epoch 1: step 12"]
    losses = [float(found[1]) for line in epochs if (found := re.search(r"loss ([\d.]+)", line))]
    assert losses[1] < losses[0]
    path = f"fb://{gs_bucket.bucket.name}-checkpoints/run/epoch=1-step=12.ckpt"
    assert newest == f"newest checkpoint: {path}"
    resumes, *epochs, newest = run(gs_bucket, "train_lightning.py", "--epochs", "9", "--steps", "15", *options)
    assert resumes == f"resumes {path}"
    assert [line.partition(", ")[0] for line in epochs] == ["epoch 2: step 15"]
    assert newest.endswith("/run/epoch=2-step=15.ckpt")


def test_resnet50_trains_on_shards_that_ishard_packed(native_bucket: DocumentBucket) -> None:
    pytest.importorskip("torchvision", reason='PYTHONPATH="$(ci/torchvision.sh)" has torchvision')
    options = ("--generate", "32", "--shard-samples", "8", "--batch-size", "8", "--workers", "2")
    shards = native_bucket.bucket.client.bucket(f"{native_bucket.bucket.name}-shards")
    try:
        first, epoch = run(native_bucket, "train_resnet50.py", *options, "--steps", "2")
        assert first == "32 samples in 4 shards"
        assert re.fullmatch(r"epoch 0: step 2, 16 samples, [\d.]+ samples/s, loss [\d.]+", epoch)
        again, *epochs = run(native_bucket, "train_resnet50.py", *options[4:], "--epochs", "2")
        assert again == first
        found = [line.partition(" samples,")[0] for line in epochs]
        assert found == ["epoch 0: step 4, 32", "epoch 1: step 8, 32"]
    finally:
        shards.delete(missing_ok=True)
