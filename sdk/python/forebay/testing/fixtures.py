"""Fixtures for pytest, by ``pytest_plugins = ["forebay.testing.fixtures"]``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forebay.bucket import Bucket
from forebay.client import Client
from forebay.testing import Cluster

__all__ = ["forebay_bucket", "forebay_client", "forebay_cluster"]


@pytest.fixture(scope="session")
def forebay_cluster() -> Iterator[Cluster]:
    """A running server, one for the whole run; ``FOREBAY_ENDPOINT`` names it meanwhile."""
    with Cluster() as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOREBAY_ENDPOINT", cluster.endpoint)
        yield cluster


@pytest.fixture
def forebay_client(forebay_cluster: Cluster) -> Client:
    """A client of it."""
    return forebay_cluster.client()


@pytest.fixture
def forebay_bucket(forebay_cluster: Cluster) -> Iterator[Bucket]:
    """An empty bucket of the test's own."""
    bucket = forebay_cluster.bucket()
    yield bucket
    bucket.delete(missing_ok=True)
