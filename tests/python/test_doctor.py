"""`forebay doctor URI` and `forebay.doctor`: as whom the targets call a cloud, and what they may do."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Callable
from typing import Any

import forebay
import pytest
from conftest import Cluster, FakeGcs, Minio
from forebay.doctor import examine
from forebay_cluster import binary
from test_feeding_clouds import s3_client

SECRET = "planted-secret-value"


@pytest.fixture(scope="module")
def cloud(minio: Minio) -> str:
    """A bucket of MinIO with a marker and two objects."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    own = s3_client(minio)
    own.create_bucket(Bucket=name)
    for key, body in {"train/": b"", "train/0": b"content", "train/1": b""}.items():
        own.put_object(Bucket=name, Key=key, Body=body)
    return name


def doctor(cluster: Cluster, *arguments: str) -> tuple[int, str]:
    """The exit code, and what was printed on both streams."""
    done = subprocess.run(
        [binary(), "doctor", *arguments],
        env={**os.environ, "FOREBAY_ENDPOINT": cluster.endpoint},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout


def rows(cluster: Cluster, uri: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and the findings by what was looked at."""
    code, text = doctor(cluster, uri, "-o", "json")
    return code, {row["check"]: row for row in json.loads(text)}


def test_a_credential_that_may_read_is_named_with_its_region(
    start_cluster: Callable[..., Cluster], minio: Minio, cloud: str
) -> None:
    running = start_cluster(targets=2, env=minio.env)
    uri = f"s3://{cloud}"
    code, found = rows(running, uri)
    assert code == 0
    assert found["credential"]["found"] == "the access key forebay-tests of AWS_ACCESS_KEY_ID"
    assert found["region"]["found"] == "us-east-1"
    assert found["endpoint"]["found"] == minio.endpoint
    ids = sorted(node["id"] for node in running.targets)
    for check, text in {"list": "'train/0'", "get": "'train/0'"}.items():
        assert found[check]["result"] == "ok" and text.replace("'", '"') in found[check]["found"]
        assert sorted(found[check]["targets"]) == ids, "both found the same"
    assert found["put"]["result"] is None and "nothing is written" in found["put"]["found"]
    code, text = doctor(running, uri)
    assert code == 0 and minio.env["AWS_SECRET_ACCESS_KEY"] not in text
    report = examine(uri, forebay.Client(running.endpoint, timeout=20))
    assert report.is_good and report.example == "train/0" and len(report.targets) == 2
    assert report.credential == found["credential"]["found"] and report.region == "us-east-1"
    assert sum(line.startswith("ok ") for line in report.lines()) == 2
    # Looking makes nothing known, and writes nothing.
    known = forebay.Client(running.endpoint).buckets()
    assert f"s3://{cloud}" not in [bucket.uri for bucket in known]
    keys = s3_client(minio).list_objects_v2(Bucket=cloud)["Contents"]
    assert [row["Key"] for row in keys] == ["train/", "train/0", "train/1"]
    # An empty object has no first byte, and a prefix without objects none to read.
    code, found = rows(running, f"{uri}/train/1")
    assert code == 0 and found["get"]["result"] == "ok"
    code, found = rows(running, f"{uri}/none/")
    assert code == 0 and "no object to try it on" in found["get"]["found"]


def test_a_missing_bucket_and_a_missing_scheme_end_with_other_codes(
    start_cluster: Callable[..., Cluster], minio: Minio
) -> None:
    running = start_cluster(targets=1, env=minio.env)
    code, found = rows(running, "s3://there-is-no-such-bucket")
    assert code == 1 and found["list"]["result"] == "fail"
    assert "there-is-no-such-bucket" in found["list"]["found"]
    report = examine("s3://there-is-no-such-bucket", forebay.Client(running.endpoint, timeout=20))
    assert not report.is_good and isinstance(report.list_error, forebay.NotFound)
    assert doctor(running, "ais://there-is-none")[0] == 4
    assert doctor(running, "nonsense")[0] == 2


def test_a_wrong_credential_is_reported_with_what_to_do(
    start_cluster: Callable[..., Cluster], minio: Minio, cloud: str
) -> None:
    env = {**minio.env, "AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": SECRET}
    running = start_cluster(targets=1, env=env)
    code, text = doctor(running, f"s3://{cloud}")
    assert code == 1 and SECRET not in text
    code, found = rows(running, f"s3://{cloud}")
    assert code == 1
    assert found["credential"]["found"] == "the access key nobody of AWS_ACCESS_KEY_ID"
    assert found["list"]["result"] == "fail" and "AWS_ACCESS_KEY_ID" in found["list"]["hint"]
    report = examine(f"s3://{cloud}", forebay.Client(running.endpoint, timeout=20))
    assert isinstance(report.list_error, forebay.AccessDenied)
    assert any(line.startswith("FAIL list") for line in report.lines())


def test_who_may_read_but_not_list_reads_an_object_that_is_named(
    start_cluster: Callable[..., Cluster], minio: Minio, cloud: str
) -> None:
    may_get = {
        "Effect": "Allow",
        "Action": ["s3:GetObject"],
        "Resource": [f"arn:aws:s3:::{cloud}/*"],
    }
    role = s3_client(minio, "sts").assume_role(
        RoleArn="arn:aws:iam::000000000000:role/reader",
        RoleSessionName="reader",
        Policy=json.dumps({"Version": "2012-10-17", "Statement": [may_get]}),
    )["Credentials"]
    env = {
        **minio.env,
        "AWS_ACCESS_KEY_ID": role["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": role["SecretAccessKey"],
        "AWS_SESSION_TOKEN": role["SessionToken"],
    }
    running = start_cluster(targets=1, env=env)
    code, found = rows(running, f"s3://{cloud}/train/0")
    assert code == 1, "it may not list"
    assert (found["list"]["result"], found["get"]["result"]) == ("fail", "ok")
    code, found = rows(running, f"s3://{cloud}")
    assert code == 1 and "give the name of one" in found["get"]["found"]


def test_google_is_called_with_the_credential_that_is_named(
    start_cluster: Callable[..., Cluster], fake_gcs: FakeGcs
) -> None:
    name = f"t-{uuid.uuid4().hex[:12]}"
    fake_gcs.create_bucket(name)
    fake_gcs.put(name, "a", b"content")
    running = start_cluster(targets=1, env=fake_gcs.env)
    code, found = rows(running, f"gs://{name}")
    assert code == 0 and (found["list"]["result"], found["get"]["result"]) == ("ok", "ok")
    assert found["credential"]["found"].startswith("none: tokens go to Google's own hosts")
    assert found["endpoint"]["found"] == fake_gcs.endpoint
    code, found = rows(running, "gs://there-is-no-such-bucket")
    assert code == 1 and found["list"]["result"] == "fail"
    env = {"GOOGLE_APPLICATION_CREDENTIALS": "/no/such/key.json", "STORAGE_EMULATOR_HOST": ""}
    wrong = start_cluster(targets=1, env=env)
    code, found = rows(wrong, f"gs://{name}")
    assert code == 1 and "/no/such/key.json cannot be read" in found["credential"]["found"]
    assert found["list"]["result"] == "fail"
    assert "GOOGLE_APPLICATION_CREDENTIALS" in found["list"]["hint"]
