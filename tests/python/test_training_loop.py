"""Training loops as users write them, over buckets in clouds: the examples, and one under which a
node dies."""

from __future__ import annotations

import hashlib
import os
import random
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import forebay
import pytest
from conftest import REPOSITORY, Cluster, FakeGcs, Minio, wait_until
from forebay_cluster import metrics_of
from forebay_torch import DynamicBatchSampler, MapDataset
from torch.utils.data import DataLoader

SAMPLES = 300
SIZE = 20_000
IMAGES = 60
EXAMPLES = REPOSITORY / "examples"


def is_ready(url: str) -> bool:
    """Whether a node says that it may be sent requests."""
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=1):
            return True
    except (urllib.error.URLError, OSError):
        return False


def s3_client(minio: Minio) -> Any:
    """A client that goes past the cluster."""
    return boto3.client(
        "s3",
        endpoint_url=minio.endpoint,
        aws_access_key_id=minio.env["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=minio.env["AWS_SECRET_ACCESS_KEY"],
        region_name=minio.env["AWS_REGION"],
    )


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of images, a folder for each class."""
    folder = tmp_path_factory.mktemp("images")
    code = "import make_images, pathlib, sys; make_images.write(pathlib.Path(sys.argv[1]), int(sys.argv[2]))"
    subprocess.run([sys.executable, "-c", code, folder, str(IMAGES)], cwd=EXAMPLES, check=True)
    return folder


def train(cluster: Cluster, source: str) -> str:
    """Runs the example and returns its output."""
    command = [sys.executable, EXAMPLES / "train_images.py", source]
    env = {**os.environ, "FOREBAY_ENDPOINT": cluster.endpoint}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_example_trains_from_google_cold_then_warm(
    start_cluster: Callable[..., Cluster], fake_gcs: FakeGcs, images: Path
) -> None:
    fake_gcs.create_bucket("shapes")
    for image in images.glob("*/*.jpg"):
        name = f"train/{image.relative_to(images).as_posix()}"
        fake_gcs.put("shapes", name, image.read_bytes())
    cluster = start_cluster(env=fake_gcs.env)
    for _ in ("cold", "warm"):
        assert f"{IMAGES} samples" in train(cluster, "gs://shapes/train/")
        assert fake_gcs.reads("shapes") == IMAGES
    assert cluster.count("forebay_backend_requests_total", op="get", provider="gcp") == IMAGES


def test_the_example_trains_from_s3_cold_then_warm(
    start_cluster: Callable[..., Cluster], minio: Minio, images: Path
) -> None:
    s3 = s3_client(minio)
    s3.create_bucket(Bucket="shapes")
    for image in images.glob("*/*.jpg"):
        name = f"train/{image.relative_to(images).as_posix()}"
        s3.put_object(Bucket="shapes", Key=name, Body=image.read_bytes())
    cluster = start_cluster(env=minio.env)
    for _ in ("cold", "warm"):
        assert f"{IMAGES} samples" in train(cluster, "s3://shapes/train/")
        assert cluster.count("forebay_backend_requests_total", op="get", provider="aws") == IMAGES


@pytest.mark.parametrize("cloud", ["gcs", "minio"])
def test_the_example_over_a_cloud_reads_it_once(
    cloud: str, request: pytest.FixtureRequest, forebay_bin: Path
) -> None:
    # Only for the word about a missing server: the example starts its own.
    request.getfixturevalue({"gcs": "fake_gcs", "minio": "minio"}[cloud])
    env = {**os.environ, "FOREBAY_BIN": str(forebay_bin), "PYTHON": sys.executable}
    command = [EXAMPLES / cloud / "run.sh"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = re.findall(r"objects read from the cloud so far: (\d+)", done.stdout)
    assert counts == ["120", "120"], done.stdout


def test_an_epoch_sees_every_sample_once_although_a_target_is_killed_in_it(
    start_cluster: Callable[..., Cluster], minio: Minio
) -> None:
    contents = {f"img/{i:04}.bin": random.Random(i).randbytes(SIZE) for i in range(SAMPLES)}
    s3 = s3_client(minio)
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
