"""s3torchconnector against the S3 front, in a process whose environment nobody changes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from conftest import Cluster, Minio
from forebay_s3 import environment, run

CASES = Path(__file__).with_name("torchconnector_cases.py")
CHECKPOINTS = Path(__file__).with_name("s3_checkpoint_cases.py")


def test_the_connector_reads_writes_and_keeps_checkpoints(s3_url: str) -> None:
    # Its native threads read the environment at any time, and a variable that is set meanwhile ends
    # the process. So it is complete before they start.
    command = [sys.executable, "-m", "pytest", CASES, "-p", "no:cacheprovider"]
    said = run(command, environment(s3_url))
    assert " passed" in said and "skipped" not in said


def test_the_compatible_checkpoint_does_what_the_connectors_does(
    start_cluster: Callable[..., Cluster], minio: Minio
) -> None:
    running = start_cluster(targets=2, env=minio.env)
    own = minio.client()
    own.create_bucket(Bucket="checkpoints")
    there = {"FOREBAY_ENDPOINT": running.endpoint, "BUCKET": "checkpoints"}
    command = [sys.executable, "-m", "pytest", CHECKPOINTS, "-p", "no:cacheprovider"]
    said = run(command, {**os.environ, **minio.env, **there})
    assert " passed" in said and "skipped" not in said
