"""MosaicML's Streaming writes its shards to S3 here and reads them: `ci/streaming.sh` fetches it."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from conftest import Cluster
from forebay_s3 import client
from stack_runs import job, packages, page
from stack_samples import every_one_once, together

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif("FOREBAY_TEST_LONG" not in os.environ, reason="make test-long runs it"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def path() -> str:
    return packages("streaming")


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., Cluster]) -> Cluster:
    return start_cluster(targets=2)


def test_each_epoch_of_two_ranks_has_each_sample_once(cluster: Cluster, path: str) -> None:
    s3 = client(f"{cluster.endpoint}/s3")
    s3.create_bucket(Bucket="two-ranks")
    assert job(cluster, path, "streaming", "write", "two-ranks") == [{"written": 1000}]
    names = [each["Key"] for each in s3.list_objects_v2(Bucket="two-ranks")["Contents"]]
    assert "set/index.json" in names and len(names) > 5
    printed = job(cluster, path, "streaming", "read", "two-ranks", ranks=2)
    for shuffle in (False, True):
        ranks = [each for each in printed if each["shuffle"] == shuffle]
        epochs = together(ranks)
        assert len(ranks) == 2 and len(epochs) == 2 and every_one_once(epochs, 1000)
        assert (epochs[0] != epochs[1]) == shuffle, "each shuffled epoch has an order of its own"


def test_a_missing_bucket_is_named_by_an_error(cluster: Cluster, path: str) -> None:
    (errors,) = job(cluster, path, "streaming", "missing", "no-such-bucket")
    assert "404" in errors["write"]
    assert "s3://no-such-bucket/set/index.json not found" in errors["read"]


def test_the_page_works_as_it_stands(cluster: Cluster, path: str) -> None:
    assert "epoch 1: 1000 samples" in page(cluster, path, "streaming")
