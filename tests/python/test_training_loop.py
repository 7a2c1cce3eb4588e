"""A training loop as a user writes it, over a bucket in a real S3, while a node dies under it."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable

import boto3
import forebay
from conftest import Cluster, Minio, wait_until
from forebay_cluster import metrics_of
from forebay_torch import DynamicBatchSampler, MapDataset
from torch.utils.data import DataLoader

SAMPLES = 300
SIZE = 20_000


def is_ready(url: str) -> bool:
    """Whether a node says that it may be sent requests."""
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=1):
            return True
    except (urllib.error.URLError, OSError):
        return False


def test_an_epoch_sees_every_sample_once_although_a_target_is_killed_in_it(
    start_cluster: Callable[..., Cluster], minio: Minio
) -> None:
    contents = {f"img/{i:04}.bin": random.Random(i).randbytes(SIZE) for i in range(SAMPLES)}
    s3 = boto3.client(
        "s3",
        endpoint_url=minio.endpoint,
        aws_access_key_id=minio.env["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=minio.env["AWS_SECRET_ACCESS_KEY"],
        region_name=minio.env["AWS_REGION"],
    )
    s3.create_bucket(Bucket="training")
    for name, content in contents.items():
        s3.put_object(Bucket="training", Key=name, Body=content)
    expected = sorted((name, hashlib.sha256(c).hexdigest()) for name, c in contents.items())

    cluster = start_cluster(env=minio.env)
    victim = cluster.targets[1]
    dataset = MapDataset(forebay.Client(cluster.endpoint).bucket("training", provider="s3"))
    sampler = DynamicBatchSampler(dataset, max_batch_size=20 * SIZE, shuffle=True)
    # Few batches ahead, so that the kill comes while most of the epoch is still to be read.
    loader = DataLoader(dataset, batch_sampler=sampler, num_workers=2, prefetch_factor=1)

    def epoch(kill_at: int | None = None) -> None:
        seen = []
        for step, (names, samples) in enumerate(loader):
            if step == kill_at:
                cluster.kill(victim["id"])
            digests = [hashlib.sha256(sample).hexdigest() for sample in samples]
            seen += list(zip(names, digests, strict=True))
        assert sorted(seen) == expected

    epoch()
    assert cluster.count("forebay_backend_requests_total", op="get") == SAMPLES
    epoch(kill_at=3)

    command = (cluster.folder / victim["id"] / "cmd").read_text()
    log = (cluster.folder / "restarted.log").open("wb")
    environment = {**os.environ, **minio.env}
    node = subprocess.Popen(["sh", "-c", f"exec {command}"], env=environment, stdout=log, stderr=log)
    try:
        wait_until(lambda: is_ready(victim["url"]), "the killed target is ready again", 30)
        epoch()
        # A process counts from its start, so these entries are of the last epoch.
        counts = {(name, labels.get("result")): value for name, labels, value in metrics_of(victim["url"])}
        assert counts["forebay_batch_entries_total", "ok"] > 0, "the target that came back serves its part"
    finally:
        node.terminate()
        node.wait(20)
        log.close()
