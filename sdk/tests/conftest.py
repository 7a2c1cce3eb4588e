"""Makes the cluster of tests/python available here."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/python"))

from forebay_fixture import bucket, client, cluster  # noqa: E402
from forebay_skips import pytest_collectreport, pytest_runtest_logreport  # noqa: E402

__all__ = ["bucket", "client", "cluster", "pytest_collectreport", "pytest_runtest_logreport"]
