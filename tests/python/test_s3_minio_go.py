"""The S3 front as minio-go's own functional tests use it, each by its name.

`make test-long` runs this; `ci/minio_go.sh` builds them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import Any

import pytest
from conftest import Cluster
from forebay_s3 import ACCESS, SECRET, built

pytestmark = [
    pytest.mark.long,
    pytest.mark.hour,
    pytest.mark.skipif("FOREBAY_TEST_LONG" not in os.environ, reason="make test-long runs it"),
    pytest.mark.timeout(900),
]

SIGNATURE_V2 = "signs by version 2, which AWS takes of no bucket made since 2020"
NO_ENCRYPTION = "server-side encryption is not served"
NO_LOCK = "object lock is not served"

# Tests that are not run: a pattern of whole names, and why.
EXCLUDED = {
    r"test.*V2": SIGNATURE_V2,
    r"test(Copy|Replace)ObjectWithChecksums": SIGNATURE_V2,
    r"test.*(SSE|Encrypt|Decrypt).*": NO_ENCRYPTION,
    r"testRemoveObjects(Iter)?": NO_LOCK,
    r"testRemoveMultipleObjectsWithResult": NO_LOCK,
    r"testMetadataSizeLimit": "not among those that minio-go itself runs",
    r"testBucketNotification": "events are not served",
    r"testPutObjectWithAutomaticChecksums": "skipped by itself: for AWS alone",
    r"testGetObjectS3Zip": "members of ZIP files are another extension of MinIO's",
    r"testListMultipartUpload": "wants uploads without owner and class, and a key marker that does "
    "not leave its key behind; AWS has both, and so has the front",
}

# Failures within tests that are run: a pattern of what the test says, and why.
EXPECTED = {
    "testPutMultipartObjectWithChecksums": (
        r'"section":"GetObjectAttributes".*"want (\S+), got \1-13"',
        "Ceph's s3-tests want the number of parts behind a checksum of checksums here, too",
    ),
    "testGetObjectACLContext": (
        r'expected \\"private\\" but got\\"public-read-write\\"',
        "an access list that was set is kept, as on AWS; MinIO keeps none",
    ),
    "testPresignedPostPolicyWrongFile": (
        r"\[&quot;eq&quot;, &quot;\$x-amz-checksum-crc32c&quot;",
        "it reads the XML as text, and quotes are escaped here",
    ),
    "testListObjects": (
        r"ListObjects is NotImplemented",
        "storage classes are taken and are all STANDARD",
    ),
}


def run(program: str, endpoint: str, name: str) -> tuple[int, list[str]]:
    """The exit code, and the lines of results."""
    env = {
        **os.environ,
        "SERVER_ENDPOINT": endpoint.removeprefix("http://"),
        "ACCESS_KEY": ACCESS,
        "SECRET_KEY": SECRET,
        "ENABLE_HTTPS": "0",
        "ENABLE_KMS": "0",
        "MINT_MODE": "full",
        # The rest of a test judges, too.
        "RUN_ON_FAIL": "1",
    }
    done = subprocess.run([program, name], env=env, capture_output=True, text=True, timeout=300)
    lines = [line for line in done.stdout.splitlines() if '"status":' in line]
    return done.returncode, lines


def failures(name: str, code: int, lines: list[str]) -> list[Any]:
    """Returns the parts of a test that failed or were skipped, and are not expected to."""
    bad = [line for line in lines if json.loads(line)["status"] != "PASS"]
    pattern, _ = EXPECTED.get(name, ("", ""))
    expected = [line for line in bad if pattern and re.search(pattern, line)]
    found: list[Any] = [line[:2000] for line in bad if line not in expected]
    if code != 0:
        found.append(f"exit code {code}")
    if name in EXPECTED and not expected:
        found.append("the failure that is expected did not come")
    return found


def test_functional_tests_of_minio_go_pass(s3_cluster: Cluster) -> None:
    program = built("minio_go.sh")
    names = sorted(subprocess.check_output([program], text=True).split())
    for pattern in EXCLUDED:
        assert any(re.fullmatch(pattern, name) for name in names), f"{pattern} excludes nothing"
    chosen = [n for n in names if not any(re.fullmatch(pattern, n) for pattern in EXCLUDED)]
    assert len(chosen) > 50 and set(EXPECTED) <= set(chosen), chosen
    wrong = {}
    for name in chosen:
        if found := failures(name, *run(program, s3_cluster.endpoint, name)):
            wrong[name] = found
    assert not wrong, json.dumps(wrong, indent=1)
