"""Under a mixed load with clients that are killed, a cluster keeps every byte and does not grow."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Cluster
from forebay_soak import BOUNDS, Sample, Soak, exceeded, make_buckets

SECONDS = 60
_AT_REST = Sample(descriptors=100, threads=20, memory=200 << 20)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif("FOREBAY_TEST_LONG" not in os.environ, reason="make test-long runs it, in a minute")
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_descriptors_threads_and_memory_stay_flat_and_every_byte_is_right(
    start_cluster: Callable[..., Cluster],
) -> None:
    cluster = start_cluster(options=["--size", "2GiB"])
    soak = Soak(cluster, make_buckets(cluster.endpoint))
    wrong = soak.run(SECONDS)
    print(soak.counts(), soak.most())
    assert wrong == []
    # The load was what the soak is about: each operation, and clients that came back.
    counts = soak.counts()
    assert all(counts.get(word, 0) > 0 for word in ("put", "get", "batch", "list", "delete"))
    assert counts["starts"] > 2 * len(soak.clients)


@pytest.mark.parametrize("what", BOUNDS)
def test_a_value_that_grows_beyond_its_bound_is_found(what: str) -> None:
    factor, more = BOUNDS[what]
    bound = int(getattr(_AT_REST, what) * factor) + more
    values: dict[str, Any] = vars(_AT_REST)
    found = exceeded("target01", [_AT_REST], [_AT_REST, Sample(**{**values, what: bound + 1})])
    assert [(finding.what, finding.bound) for finding in found] == [(what, bound)]
    assert exceeded("target01", [_AT_REST], [Sample(**{**values, what: bound})]) == []
