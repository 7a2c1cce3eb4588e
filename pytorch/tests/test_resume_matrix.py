"""Each sample exactly once, in the order of a run that was never left: a part of all cases at every
commit, all of them by ``make test-long``."""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import forebay

pytest.importorskip("torchdata")

import resume_matrix  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

_CASES_OF_A_COMMIT = 80
_SECONDS_OF_A_COMMIT = 15


@pytest.fixture(scope="module")
def prefix(cluster: Any) -> Iterator[str]:
    name = f"matrix-{uuid.uuid4().hex[:8]}"
    buckets = resume_matrix.fill(forebay.Client(cluster.endpoint, timeout=20), name)
    yield name
    for bucket in buckets:
        bucket.delete()


def _seed() -> int:
    if given := os.environ.get("FOREBAY_SEED"):
        return int(given)
    folder = Path(__file__).parent
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=False
    )
    return int(head.stdout.strip()[:8] or "1", 16)


def _check(cases: list[resume_matrix.Case], endpoint: str, prefix: str, seconds: float) -> int:
    """Runs cases until the time is over, and returns how many it ran."""
    expected: dict[tuple[str, str, int], list[str]] = {}
    failed = []
    end = time.monotonic() + seconds
    ran = 0
    for case in cases:
        if time.monotonic() > end:
            break
        if case[:3] not in expected:
            expected[case[:3]] = resume_matrix.whole(case, endpoint, prefix)
        whole = expected[case[:3]]
        try:
            given = resume_matrix.resumed(case, endpoint, prefix)
        except Exception as error:
            failed.append(f"{case}: {type(error).__name__}: {error}")
            continue
        finally:
            ran += 1
        if case.keeps_order and given != whole:
            failed.append(f"{case}: {given} is not {whole}")
        elif sorted(given) != sorted(whole):
            failed.append(f"{case}: not the same samples: {sorted(given)} and {sorted(whole)}")
    assert not failed, f"{len(failed)} of {ran} cases:\n" + "\n".join(failed[:20])
    return ran


def test_runs_that_are_left_and_resumed_give_what_one_run_gives(cluster: Any, prefix: str) -> None:
    seed = _seed()
    print(f"FOREBAY_SEED={seed}")
    cases = resume_matrix.chosen(_CASES_OF_A_COMMIT, seed)
    ran = _check(cases, cluster.endpoint, prefix, _SECONDS_OF_A_COMMIT)
    assert ran >= 10, "a machine this slow tests nothing"


@pytest.mark.long
@pytest.mark.hour
@pytest.mark.skipif(
    "FOREBAY_TEST_LONG" not in os.environ, reason="make test-long runs all cases, in an hour"
)
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("loader", resume_matrix.LOADERS)
@pytest.mark.parametrize("kind", resume_matrix.KINDS)
def test_all_runs_that_are_left_and_resumed(
    cluster: Any, prefix: str, kind: str, loader: str
) -> None:
    cases = [case for case in resume_matrix.cases() if (case.kind, case.loader) == (kind, loader)]
    if not cases:
        pytest.skip(f"{loader} does not take {kind}")
    started = time.monotonic()
    ran = _check(cases, cluster.endpoint, prefix, float("inf"))
    assert ran == len(cases)
    print(f"{kind} in {loader}: {ran} cases in {time.monotonic() - started:.0f} s")
