"""NVIDIA's Multi-Storage Client reads and writes here through S3, by boto3 and by its Rust client, and
through AIStore's API: `ci/msc.sh` and `ci/aistore_2.sh` fetch it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Cluster
from forebay_s3 import ACCESS, SECRET, client
from stack_runs import job, packages, page
from stack_samples import every_one_once, together

COUNT = 200
PROFILES = ["s3", "rust", "v1"]
pytestmark = pytest.mark.timeout(900)
unless_long = pytest.mark.skipif(
    "FOREBAY_TEST_LONG" not in os.environ, reason="make test-long runs it"
)


@pytest.fixture(scope="module")
def path() -> str:
    return packages("msc", "aistore_2")


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., Cluster]) -> Cluster:
    running = start_cluster(targets=2)
    client(f"{running.endpoint}/s3").create_bucket(Bucket="files")
    return running


@pytest.fixture
def run(cluster: Cluster, path: str, tmp_path: Path) -> Callable[..., list[Any]]:
    """`run(KIND, PROFILE, bucket=…, ranks=…)`: what a job prints."""

    def profile(kind: str, bucket: str) -> dict[str, Any]:
        if kind == "v1":
            options: dict[str, Any] = {"endpoint": cluster.endpoint, "base_path": bucket}
            return {"storage_provider": {"type": "ais", "options": options}}
        options = {"endpoint_url": f"{cluster.endpoint}/s3", "base_path": bucket}
        options |= {"region_name": "us-east-1"}
        options |= {"rust_client": {"allow_http": True}} if kind == "rust" else {}
        keys = {"access_key": ACCESS, "secret_key": SECRET}
        return {
            "storage_provider": {"type": "s3", "options": options},
            "credentials_provider": {"type": "S3Credentials", "options": keys},
        }

    def start(work: str, kind: str, bucket: str = "files", ranks: int = 1) -> list[Any]:
        config = tmp_path / "msc.json"
        config.write_text(json.dumps({"profiles": {kind: profile(kind, bucket)}}))
        env = {"MSC_CONFIG": str(config)}
        return job(cluster, path, "msc", work, kind, ranks=ranks, env=env)

    return start


def test_a_missing_bucket_is_an_error_of_a_read_and_of_a_write(
    run: Callable[..., list[Any]],
) -> None:
    (errors,) = run("missing", "s3", "no-such-bucket")
    assert errors["read"].startswith("FileNotFoundError: Object no-such-bucket/s3/none")
    assert "no-such-bucket" in errors["write"] and "404" in errors["write"]


@pytest.mark.long
@unless_long
@pytest.mark.parametrize("kind", PROFILES)
def test_files_are_written_and_each_epoch_of_two_ranks_has_each_once(
    run: Callable[..., list[Any]], kind: str
) -> None:
    (said,) = run("files", kind)
    assert said == {
        "whole": True,
        "end": True,
        "middle": True,
        "copy": True,
        "label": {"label": "cat"},
        "names": list(range(COUNT)),
        "found": COUNT,
        "is_file": [True, False],
        "deleted": True,
    }
    printed = run("epochs", kind, ranks=2)
    for shuffle in (False, True):
        ranks = [each for each in printed if each["shuffle"] == shuffle]
        epochs = together(ranks)
        assert len(ranks) == 2 and len(epochs) == 2 and every_one_once(epochs, COUNT)
        assert (epochs[0] != epochs[1]) == shuffle, "each shuffled epoch has an order of its own"


@pytest.mark.long
@unless_long
@pytest.mark.parametrize("kind", PROFILES)
def test_folders_are_synchronized_both_ways(run: Callable[..., list[Any]], kind: str) -> None:
    assert run("sync", kind) == [{"same": 30, "files": 30}]


@pytest.mark.long
@unless_long
def test_the_page_works_as_it_stands(cluster: Cluster, path: str) -> None:
    assert "10 files, the last 'sample 9'" in page(cluster, path, "msc")
