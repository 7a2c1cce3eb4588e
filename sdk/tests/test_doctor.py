"""The doctor reports which operations a client may do with a bucket, and with which identity."""

from __future__ import annotations

import os
import subprocess
import sys

import forebay
from forebay.doctor import examine


def test_a_bucket_is_listed_and_read(bucket: forebay.Bucket, client: forebay.Client) -> None:
    empty = examine(bucket.uri, client)
    assert empty.is_good and empty.example == ""
    assert any("there is no object to try it on" in line for line in empty.lines())
    assert empty.credential == "none: the bucket is the cluster's own"
    bucket.put_many([("a/0", b""), ("a/1", b"content")])
    for prefix, example in (("", "a/0"), ("a/1", "a/1")):
        report = examine(f"{bucket.uri}/{prefix}", client)
        assert report.is_good and report.example == example
        assert report.endpoint == client.endpoint
        assert sum(line.startswith("ok ") for line in report.lines()) == 2
    missing = examine("ais://there-is-none", client)
    assert not missing.is_good and "there-is-none" in str(missing.list_error)
    assert any(line.startswith("FAIL list") for line in missing.lines())


def test_the_command_says_the_same(bucket: forebay.Bucket, client: forebay.Client) -> None:
    bucket.object("a").put(b"content")
    for uri, code, text in ((bucket.uri, 0, "ok   get"), ("ais://there-is-none", 1, "FAIL list")):
        done = subprocess.run(
            [sys.executable, "-m", "forebay.doctor", uri],
            env={**os.environ, "FOREBAY_ENDPOINT": client.endpoint},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == code and text in done.stdout, done
        assert client.endpoint in done.stdout
