"""s3torchconnector against the S3 front, in a process whose environment nobody changes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from conftest import Cluster, Minio, UsersCluster
from forebay_s3 import environment, run

CASES = Path(__file__).with_name("torchconnector_cases.py")
CHECKPOINTS = Path(__file__).with_name("s3_checkpoint_cases.py")


def run_cases(env: Mapping[str, str]) -> None:
    # Its native threads read the environment at any time, and a variable that is set meanwhile ends
    # the process. So it is complete before they start.
    said = run([sys.executable, "-m", "pytest", CASES, "-p", "no:cacheprovider"], env)
    assert " passed" in said and "skipped" not in said


def test_the_connector_reads_writes_and_keeps_checkpoints(s3_url: str) -> None:
    run_cases(environment(s3_url))


def test_the_connector_works_with_users_and_tls_and_a_key_of_dev_json(users: UsersCluster) -> None:
    key = users.cluster.info["s3_keys"][0]
    # Its library reads the CAs of the system, which this variable replaces, and not AWS_CA_BUNDLE.
    ca = {"SSL_CERT_FILE": str(users.ca)}
    run_cases(users.s3_environment((key["access"], key["secret"])) | ca)


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
