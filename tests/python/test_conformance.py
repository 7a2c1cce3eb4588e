"""AIStore's own test suites pass as they do on AIStore, where they are at hand.

AIS_CONFORMANCE names a folder with `run.sh` (runs the suites against ENDPOINT into OUT), `report.py`
(compares two results) and `baseline/aistore-5.0-ais.json` (what AIStore itself passes);
AIS_CONFORMANCE_PYTHON an interpreter with the packages that they need. Without them this is skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Cluster

SUITES = Path(os.environ.get("AIS_CONFORMANCE", ""))

pytestmark = pytest.mark.skipif(
    not (SUITES / "run.sh").is_file(), reason="AIS_CONFORMANCE names no folder with AIStore's suites"
)


@pytest.mark.timeout(900)
def test_what_passes_on_aistore_passes_here(
    start_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    config = tmp_path / "s3.toml"
    config.write_text("[s3]\ndelete_nonempty_buckets = true\n")
    cluster = start_cluster(options=["--config", str(config)])
    out = tmp_path / "out"
    python = os.environ.get("AIS_CONFORMANCE_PYTHON", sys.executable)
    keys = {"AWS_ACCESS_KEY_ID": "forebay", "AWS_SECRET_ACCESS_KEY": "forebaysecret"}
    keys |= {"ACCESS_KEY": "forebay", "SECRET_KEY": "forebaysecret"}
    ours = {"ENDPOINT": cluster.endpoint, "OUT": str(out), "PYTHON": python}
    subprocess.run([SUITES / "run.sh"], env={**os.environ, **keys, **ours}, check=False)
    compare = [SUITES / "report.py", "compare", SUITES / "baseline/aistore-5.0-ais.json"]
    done = subprocess.run([*compare, out / "results.json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
