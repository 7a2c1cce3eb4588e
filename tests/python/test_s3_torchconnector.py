"""s3torchconnector against the S3 front, in a process whose environment nobody changes."""

from __future__ import annotations

import sys
from pathlib import Path

from forebay_s3 import environment, run

CASES = Path(__file__).with_name("torchconnector_cases.py")


def test_the_connector_reads_writes_and_keeps_checkpoints(s3_url: str) -> None:
    # Its native threads read the environment at any time, and a variable that is set meanwhile ends
    # the process. So it is complete before they start.
    command = [sys.executable, "-m", "pytest", CASES, "-p", "no:cacheprovider"]
    said = run(command, environment(s3_url))
    assert " passed" in said and "skipped" not in said
