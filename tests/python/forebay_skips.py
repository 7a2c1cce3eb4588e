"""Marks tests that only `make test-long` runs, and writes each skipped test, with its reason, to the file that
FOREBAY_SKIPPED names.

`ci/test_python.sh` prints these lines at the end of a run, and `ci/test_rust.sh` those of the Rust
tests. A conftest.py takes both hooks in by an import.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

__all__ = ["long", "pytest_collectreport", "pytest_runtest_logreport"]


def long(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test that only `make test-long` runs."""
    unless = pytest.mark.skipif("FOREBAY_TEST_LONG" not in os.environ, reason="make test-long runs it")
    marked: Callable[..., Any] = pytest.mark.long(unless(test))
    return marked


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # A test that is expected to fail, and does, is reported as skipped, too.
    if not hasattr(report, "wasxfail"):
        note(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Files that are skipped as a whole."""
    note(report)


def note(report: pytest.TestReport | pytest.CollectReport) -> None:
    file = os.environ.get("FOREBAY_SKIPPED")
    if not file or not report.skipped:
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    text = " ".join(reason.removeprefix("Skipped: ").split())
    with Path(file).open("a") as lines:
        lines.write(f"skipped: {report.nodeid}: {text}\n")
