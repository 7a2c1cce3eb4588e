"""Fixtures of the tests of the running product: real clusters and a real S3.

`forebay_bin`, `start_cluster` (as many as a test wants), `cluster` (one per file), `minio` (one per
run). All processes end with the fixture that started them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from forebay_cluster import (
    REPOSITORY,
    START_DEADLINE_S,
    STOP_DEADLINE_S,
    Cluster,
    binary,
    free_ports,
    wait_until,
)

__all__ = ["REPOSITORY", "Cluster", "Minio", "free_ports", "wait_until"]


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


@dataclass
class Minio:
    """A running MinIO and the environment that points AWS clients, and targets, at it."""

    endpoint: str
    env: dict[str, str]


@pytest.fixture(scope="session")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio]:
    """S3 for real. Skips where there is no MinIO, fails there with FOREBAY_REQUIRE_MINIO set."""
    binary = os.environ.get("FOREBAY_MINIO") or shutil.which("minio")
    if not binary:
        if os.environ.get("FOREBAY_REQUIRE_MINIO"):
            pytest.fail("MinIO not found, and FOREBAY_REQUIRE_MINIO is set; see ci/minio.sh")
        pytest.skip("MinIO not found")
    folder = tmp_path_factory.mktemp("minio")
    endpoint = f"http://127.0.0.1:{free_ports(1)}"
    user, secret = "forebay-tests", "forebay-tests-secret"
    address = endpoint.removeprefix("http://")
    with (folder / "log").open("wb") as output:
        process = subprocess.Popen(
            [binary, "server", "--quiet", "--address", address, folder / "data"],
            stdout=output,
            stderr=output,
            env={
                **os.environ,
                "MINIO_ROOT_USER": user,
                "MINIO_ROOT_PASSWORD": secret,
                "MINIO_BROWSER": "off",
                "MINIO_PROMETHEUS_AUTH_TYPE": "public",
            },
        )
    try:

        def alive() -> bool:
            try:
                with urllib.request.urlopen(f"{endpoint}/minio/health/live", timeout=1):
                    return True
            except (urllib.error.URLError, OSError):
                return False

        wait_until(alive, f"MinIO answers; log in {folder}", START_DEADLINE_S)
        yield Minio(
            endpoint,
            {
                "AWS_ACCESS_KEY_ID": user,
                "AWS_SECRET_ACCESS_KEY": secret,
                "AWS_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": endpoint,
            },
        )
    finally:
        process.terminate()
        try:
            process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
