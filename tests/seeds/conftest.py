"""Makes the clusters and clouds of tests/python available here, and counts the blocks that ran."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from documents import COUNT, are_required  # noqa: E402
from forebay_clouds import fake_gcs, minio  # noqa: E402
from forebay_cluster import REPOSITORY  # noqa: E402
from forebay_fixture import bucket, client, cluster  # noqa: E402
from forebay_skips import pytest_collectreport, pytest_runtest_logreport  # noqa: E402
from storage import (  # noqa: E402
    article_bucket,
    article_bucket_behind_s3,
    gs_bucket,
    gs_cluster,
    native_bucket,
    s3_bucket,
    s3_cluster,
)

__all__ = [
    "article_bucket",
    "article_bucket_behind_s3",
    "bucket",
    "client",
    "cluster",
    "fake_gcs",
    "gs_bucket",
    "gs_cluster",
    "minio",
    "native_bucket",
    "pytest_collectreport",
    "pytest_runtest_logreport",
    "s3_bucket",
    "s3_cluster",
]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails the run if the documents are required and a block did not run."""
    if are_required() and COUNT.missing() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Prints how many blocks ran; `.ci/run` repeats these lines from the report."""
    if not COUNT.declared:
        return
    lines = COUNT.lines()
    report = Path(os.environ.get("FOREBAY_SEEDS_REPORT") or REPOSITORY / "build/seeds.txt")
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text("".join(f"{line}\n" for line in lines))
    terminalreporter.section("code blocks of the documents")
    for line in lines:
        terminalreporter.write_line(line)
