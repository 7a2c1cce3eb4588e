"""`min_share`: the part of the cache that a bucket keeps beside a reader of a larger data set."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import forebay
import pytest
from conftest import Cluster
from forebay_command import Command
from forebay_faults import crash_and_start

OBJECT_BYTES = 128 << 10
# The budget of the target's disk.
BUDGET_BYTES = 16 << 20


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two data sets: one of a quarter of the budget, one of four times the budget."""
    root = tmp_path_factory.mktemp("folders")
    for name, count in {"job": 32, "scan": 512}.items():
        (root / name).mkdir()
        for number in range(count):
            (root / name / f"{number:03}").write_bytes(bytes([number % 251]) * OBJECT_BYTES)
    return root


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., Cluster], folders: Path) -> Cluster:
    """A cluster of one target."""
    options = ["--size", str(BUDGET_BYTES), "--folder-root", str(folders)]
    return start_cluster(targets=1, options=options)


@pytest.fixture(scope="module")
def restarted(cluster: Cluster) -> Iterator[ExitStack]:
    """Holds nodes that were started again, until the end of the tests."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def two(cluster: Cluster, folders: Path) -> Iterator[tuple[forebay.Bucket, forebay.Bucket]]:
    """Buckets over both data sets."""
    client = forebay.Client(cluster.endpoint, timeout=20)
    job = client.bucket("job").create(folder=folders / "job")
    scan = client.bucket("scan").create(folder=folders / "scan")
    yield job, scan
    job.delete()
    scan.delete()


def read_all(bucket: forebay.Bucket) -> None:
    """Reads each object once."""
    for entry in list(bucket.list_objects()):
        assert len(bucket.object(entry.name).get().read_all()) == OBJECT_BYTES


def test_a_bucket_keeps_its_minimum_beside_a_scanner_also_after_a_restart(
    cluster: Cluster,
    restarted: ExitStack,
    two: tuple[forebay.Bucket, forebay.Bucket],
    tmp_path: Path,
) -> None:
    job, scan = two
    command = Command.of(cluster, tmp_path)
    command.ok("bucket", "set", job.uri, "cache.min_share=30%")
    read_all(job)
    read_all(scan)
    assert job.warmth().objects == 32
    for node in [*cluster.info["gateways"], *cluster.targets]:
        crash_and_start(cluster, node["id"], restarted)
    assert re.search(r"min_share\s+30%", command.ok("bucket", "info", job.uri))
    assert job.head()["cache"]["min_share"] == 30
    read_all(scan)
    assert job.warmth().objects == 32


def test_minimums_of_more_than_the_whole_cache_are_refused(
    cluster: Cluster, two: tuple[forebay.Bucket, forebay.Bucket], tmp_path: Path
) -> None:
    job, scan = two
    command = Command.of(cluster, tmp_path)
    command.ok("bucket", "set", job.uri, "min_share=60%")
    refused = command("bucket", "set", scan.uri, "min_share=41%")
    assert refused.code == 2
    assert "60 %" in refused.err and "at most 40 %" in refused.err, refused.err
    assert "min_share" not in scan.head()["cache"]
    command.ok("bucket", "set", scan.uri, "min_share=40%")
    command.ok("bucket", "set", job.uri, "min_share=0")
    command.ok("bucket", "set", scan.uri, "min_share=100%")
