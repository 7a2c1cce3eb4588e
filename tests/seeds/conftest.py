"""Makes the cluster of tests/python available here."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from forebay_fixture import bucket, client, cluster  # noqa: E402

__all__ = ["bucket", "client", "cluster"]
