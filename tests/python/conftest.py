"""Fixtures of the tests of the running product: real clusters, a real S3, an emulated Google.

`forebay_bin`, `start_cluster` (as many as a test wants), `cluster` (one per file), `minio` and
`fake_gcs` (one per run). For clients of S3: `s3_cluster` and `s3` (one per run), `s3_url` and
`bucket`. All processes end with the fixture that started them.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from forebay_clouds import FakeGcs, Minio, fake_gcs, minio, stop
from forebay_cluster import REPOSITORY, Cluster, binary, free_ports, wait_until
from forebay_s3 import client
from forebay_skips import pytest_collectreport, pytest_runtest_logreport
from forebay_users import UsersCluster, users_cluster

__all__ = [
    "REPOSITORY",
    "Cluster",
    "FakeGcs",
    "Minio",
    "UsersCluster",
    "fake_gcs",
    "free_ports",
    "minio",
    "pytest_collectreport",
    "pytest_runtest_logreport",
    "stop",
    "wait_until",
]


@pytest.fixture(scope="session")
def forebay_bin() -> Path:
    """The binary under test."""
    return binary()


@pytest.fixture(scope="module")
def start_cluster(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., Cluster]]:
    """`start_cluster(gateways=1, targets=3, options=[...], env={...})` -> a ready Cluster."""
    running: list[Cluster] = []

    def start(**options: Any) -> Cluster:
        running.append(Cluster.start(tmp_path_factory.mktemp("cluster"), **options))
        return running[-1]

    yield start
    for cluster in running:
        cluster.stop()


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., Cluster]) -> Cluster:
    """One gateway and three targets, shared by the tests of a file."""
    return start_cluster()


@pytest.fixture(scope="session")
def s3_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One gateway and three targets for all clients of S3; each keeps to buckets of its own.

    S3 lies at `/`, too, and a bucket has a host under localhost."""
    folder = tmp_path_factory.mktemp("s3-cluster")
    config = folder / "config.toml"
    config.write_text('[s3]\nroot = true\ndomains = ["localhost"]\n')
    running = Cluster.start(folder, options=["--config", str(config)])
    try:
        yield running
    finally:
        running.stop()
        # A gigabyte by now.
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def node_certificate(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A certificate for nodes of this machine, by the names of the keys of a Secret for TLS."""
    running = Cluster.start(tmp_path_factory.mktemp("tls"), targets=1, options=["--tls"])
    running.stop()
    folder = Path(running.info["ca"]).parent
    names = {"tls.crt": "target01.pem", "tls.key": "target01-key.pem", "ca.crt": "ca.pem"}
    return {key: (folder / name).read_text() for key, name in names.items()}


@pytest.fixture(scope="session")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UsersCluster]:
    """One gateway and two targets with users and TLS: the administrator `root`, a `writer`, a `reader`,
    and a `stranger` without a role, each named after its role."""
    with users_cluster(tmp_path_factory.mktemp("users-cluster"), ["--tls"]) as running:
        yield running


@pytest.fixture(scope="session")
def users_without_tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UsersCluster]:
    """As `users`, over plain HTTP."""
    with users_cluster(tmp_path_factory.mktemp("users-cluster"), []) as running:
        yield running


@pytest.fixture(scope="session")
def s3(s3_cluster: Cluster) -> Any:
    """boto3 at the gateway: makes and judges what other clients read and write."""
    return client(f"{s3_cluster.endpoint}/s3")


@pytest.fixture
def s3_url(s3_cluster: Cluster) -> str:
    """The endpoint of S3 clients: the gateway, which owns no object."""
    return f"{s3_cluster.endpoint}/s3"


@pytest.fixture
def bucket(s3: Any) -> str:
    """An empty bucket of the test's own."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    s3.create_bucket(Bucket=name)
    return name
