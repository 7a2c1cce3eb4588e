"""Clouds of the tests: a MinIO and a fake-gcs-server, each one process for a whole test run.

A conftest.py takes the fixtures in by `from forebay_clouds import fake_gcs, minio`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from forebay_cluster import START_DEADLINE_S, STOP_DEADLINE_S, free_ports, wait_until

__all__ = ["FakeGcs", "Minio", "fake_gcs", "minio", "stop"]


@dataclass
class Minio:
    """A running MinIO and the environment that points AWS clients, and targets, at it."""

    endpoint: str
    env: dict[str, str]

    def client(self) -> Any:
        """boto3 at it, past any cluster."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.env["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self.env["AWS_SECRET_ACCESS_KEY"],
            region_name=self.env["AWS_REGION"],
        )

    def new_bucket(self) -> tuple[str, Any]:
        """A new bucket, and boto3 at it."""
        own = self.client()
        name = f"t-{uuid.uuid4().hex[:12]}"
        own.create_bucket(Bucket=name)
        return name, own


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
        live = f"{endpoint}/minio/health/live"
        wait_until(lambda: answers(live), f"MinIO answers; log in {folder}", START_DEADLINE_S)
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
        stop(process)


@dataclass
class FakeGcs:
    """A running fake-gcs-server and the environment that points targets at it."""

    endpoint: str
    env: dict[str, str]
    log: Path

    def create_bucket(self, bucket: str) -> None:
        self._post("/storage/v1/b", json.dumps({"name": bucket}).encode(), "application/json")

    def put(self, bucket: str, name: str, content: bytes) -> None:
        """Puts an object past any cluster."""
        query = urllib.parse.urlencode({"uploadType": "media", "name": name})
        path = f"/upload/storage/v1/b/{bucket}/o?{query}"
        self._post(path, content, "application/octet-stream")

    def reads(self, bucket: str) -> int:
        """How many reads of objects of this bucket its log has, successful ones."""
        begin = f'"GET /storage/v1/b/{bucket}/o/'.replace('"', '\\"')
        lines = self.log.read_text().splitlines()
        good = 'HTTP/1.1\\" 20'
        return sum(begin in line and "alt=media" in line and good in line for line in lines)

    def _post(self, path: str, content: bytes, kind: str) -> None:
        request = urllib.request.Request(self.endpoint + path, content, {"content-type": kind})
        with urllib.request.urlopen(request, timeout=20):
            pass


@pytest.fixture(scope="session")
def fake_gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeGcs]:
    """Google Cloud Storage, as near as it gets. Skips where there is no fake-gcs-server, fails
    there with FOREBAY_REQUIRE_FAKE_GCS set."""
    binary = os.environ.get("FOREBAY_FAKE_GCS") or shutil.which("fake-gcs-server")
    if not binary:
        if os.environ.get("FOREBAY_REQUIRE_FAKE_GCS"):
            pytest.fail("fake-gcs-server not found; see ci/fake_gcs.sh")
        pytest.skip("fake-gcs-server not found")
    log = tmp_path_factory.mktemp("fake-gcs") / "log"
    port = free_ports(1)
    endpoint = f"http://127.0.0.1:{port}"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [binary, "-backend", "memory", "-scheme", "http"]
            + ["-host", "127.0.0.1", "-port", str(port)],
            stdout=output,
            stderr=output,
        )
    try:
        ready = f"{endpoint}/_internal/healthcheck"
        wait_until(lambda: answers(ready), f"fake-gcs-server answers; log {log}", START_DEADLINE_S)
        yield FakeGcs(endpoint, {"STORAGE_EMULATOR_HOST": endpoint}, log)
    finally:
        stop(process)


def answers(url: str) -> bool:
    """Whether a server answers, and well."""
    try:
        with urllib.request.urlopen(url, timeout=1):
            return True
    except (urllib.error.URLError, OSError):
        return False


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a server, in peace if it goes."""
    process.terminate()
    try:
        process.wait(STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
