"""`bench/compare/composed.py` measures composed reads on a bucket of Google's, here an emulated one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
import uuid
from pathlib import Path

from conftest import REPOSITORY, FakeGcs

PROGRAM = REPOSITORY / "bench/compare/composed.py"


def composed(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env})


def test_both_ways_are_measured_and_the_bucket_is_left_as_it_was(
    fake_gcs: FakeGcs, forebay_bin: Path
) -> None:
    bucket = f"composed-{uuid.uuid4().hex[:8]}"
    fake_gcs.create_bucket(bucket)
    words = ["--bin", str(forebay_bin), "--objects", "64", "--rounds", "1", "--json"]
    done = composed(f"gs://{bucket}", *words, **fake_gcs.env)
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    assert measured["requests"]["one by one"]["reads of objects"] == 64
    assert measured["requests"]["composed"]["reads of objects"] < 8
    with urllib.request.urlopen(f"{fake_gcs.endpoint}/storage/v1/b/{bucket}/o") as answer:
        assert json.load(answer).get("items", []) == []


def test_a_bucket_of_another_cloud_is_refused() -> None:
    done = composed("s3://train")
    assert done.returncode == 2
    assert "s3://train: give a bucket of Google's as gs://BUCKET" in done.stderr
