"""What a client may do with a bucket, and as whom."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import forebay
from forebay.doctor import credentials_of, examine


def test_a_bucket_is_listed_and_read(bucket: forebay.Bucket, client: forebay.Client) -> None:
    empty = examine(bucket.uri, client)
    assert empty.is_good and empty.example == ""
    assert any("no object there" in line for line in empty.lines())
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


def test_credentials_are_named_and_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "key.json"
    file.write_text(
        json.dumps(
            {
                "type": "service_account",
                "client_email": "train@lab.iam",
                "project_id": "lab",
                "private_key": "planted-secret",
            }
        )
    )
    google = {"GOOGLE_APPLICATION_CREDENTIALS": str(file)}
    assert credentials_of("gcp", google) == (f"train@lab.iam, from {file}", "lab")
    counted = {**google, "GOOGLE_CLOUD_QUOTA_PROJECT": "other"}
    assert credentials_of("gcp", counted)[1] == "other"
    assert "emulator:1" in str(credentials_of("gcp", {"STORAGE_EMULATOR_HOST": "http://emulator:1"}))
    assert "metadata server" in str(credentials_of("gcp", {"HOME": str(tmp_path)}))
    gone = {"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "gone")}
    assert "cannot be read" in str(credentials_of("gcp", gone))
    key = {"AWS_ACCESS_KEY_ID": "AKIA1", "AWS_SECRET_ACCESS_KEY": "planted-secret"}
    assert credentials_of("aws", key) == ("the key AKIA1 of AWS_ACCESS_KEY_ID", None)
    assert "neither a key" in str(credentials_of("aws", {"HOME": str(tmp_path)}))
    profile = {"HOME": str(tmp_path), "AWS_PROFILE": "lab", "AWS_SHARED_CREDENTIALS_FILE": str(file)}
    assert "'lab'" in str(credentials_of("aws", profile))
    azure = {"AZURE_STORAGE_ACCOUNT": "lab", "AZURE_STORAGE_KEY": "planted-secret"}
    assert "account lab" in str(credentials_of("azure", azure))
    for provider, environment in (("gcp", google), ("aws", key), ("azure", azure)):
        assert "planted-secret" not in str(credentials_of(provider, environment))
