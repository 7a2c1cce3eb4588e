"""Fixtures of the tests of the two Python packages: one cluster for a whole test run.

A conftest.py takes them in by `from forebay_fixture import bucket, client, cluster`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forebay_cluster import Cluster as RunningCluster
from forebay_cluster import binary

# A test that forgot its cluster must not start the user's own.
os.environ.setdefault("FOREBAY_LOCAL", "off")

__all__ = ["Cluster", "binary", "bucket", "client", "cluster", "python"]


class Cluster(RunningCluster):
    """A cluster with a folder whose subfolders may be buckets."""

    @property
    def folder_root(self) -> Path:
        return self.folder / "folders"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for all tests; FOREBAY_ENDPOINT names it meanwhile."""
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "folders").mkdir()
    running = Cluster.start(folder, options=["--folder-root", str(folder / "folders")])
    before = os.environ.get("FOREBAY_ENDPOINT")
    os.environ["FOREBAY_ENDPOINT"] = running.endpoint
    try:
        yield running
    finally:
        if before is None:
            del os.environ["FOREBAY_ENDPOINT"]
        else:
            os.environ["FOREBAY_ENDPOINT"] = before
        running.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def client(cluster: Cluster) -> Any:
    """A client of the cluster."""
    import forebay

    return forebay.Client(cluster.endpoint, timeout=20)


@pytest.fixture
def bucket(client: Any) -> Iterator[Any]:
    """A native bucket of the test's own."""
    own = client.bucket(f"t-{uuid.uuid4().hex[:12]}").create()
    yield own
    own.delete(missing_ok=True)


def python(code: str, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Runs code in a new interpreter."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=timeout
    )
