"""Ray Data writes and reads tables, shards and files in S3 here: `ci/ray.sh` fetches it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Cluster
from forebay_s3 import client
from stack_runs import job, packages, page
from stack_samples import every_one_once

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif("FOREBAY_TEST_LONG" not in os.environ, reason="make test-long runs it"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def path() -> str:
    return packages("ray")


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., Cluster]) -> Cluster:
    return start_cluster(targets=2)


@pytest.fixture(scope="module")
def sizes_and_said(cluster: Cluster, path: str) -> tuple[dict[str, int], Any]:
    """The sizes of all objects afterwards, and what the job printed."""
    s3 = client(f"{cluster.endpoint}/s3")
    s3.create_bucket(Bucket="ray-data")
    (said,) = job(cluster, path, "ray", "ray-data")
    listed = s3.list_objects_v2(Bucket="ray-data")["Contents"]
    return {f"ray-data/{each['Key']}": each["Size"] for each in listed}, said


@pytest.mark.parametrize("order", ["in order", "shuffled"])
def test_each_epoch_of_two_consumers_has_each_row_once(
    sizes_and_said: tuple[dict[str, int], Any], order: str
) -> None:
    consumers = sizes_and_said[1][order]
    epochs = [first + second for first, second in zip(*consumers, strict=True)]
    assert len(epochs) == 2 and every_one_once(epochs, 1000)


def test_shards_and_files_are_read_as_they_were_written(
    sizes_and_said: tuple[dict[str, int], Any],
) -> None:
    sizes, said = sizes_and_said
    assert said["shards"] == sorted(f"sample {number}" for number in range(100))
    # pyarrow makes an empty object for the folder, and Ray reads the files in it.
    files = {k: v for k, v in sizes.items() if k.startswith("ray-data/rows/") and k[-1] != "/"}
    assert said["files"] == files
    assert sum(name.startswith("ray-data/shards/") for name in sizes) == 3


def test_a_missing_bucket_is_named_by_an_error(sizes_and_said: tuple[dict[str, int], Any]) -> None:
    said = sizes_and_said[1]
    assert said["missing read"].startswith("FileNotFoundError: no-such-bucket/rows")
    assert said["missing write"].startswith("OSError: Bucket 'no-such-bucket' not found")


def test_the_page_works_as_it_stands(cluster: Cluster, path: str) -> None:
    printed = page(cluster, path, "ray")
    for line in ("1000 rows with the sum 499500", "100 samples of shards", "1000 rows shuffled"):
        assert line in printed
