"""Clients of S3 in a cluster with users and TLS, with access keys of users."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from conftest import UsersCluster
from forebay_s3 import REGION, content, program

BODY = content(6 << 20)


def s3_client(users: UsersCluster, key: tuple[str, str], token: str | None = None) -> Any:
    """boto3 with this key."""
    return boto3.client(
        "s3",
        endpoint_url=users.s3_url,
        region_name=REGION,
        aws_access_key_id=key[0],
        aws_secret_access_key=key[1],
        aws_session_token=token,
        verify=users.ca,
        config=Config(retries={"max_attempts": 1}, s3={"addressing_style": "path"}),
    )


@pytest.fixture(scope="module")
def keys(users: UsersCluster) -> dict[str, tuple[str, str]]:
    """A key of each user."""
    return {user: users.key_of(user) for user in ("writer", "reader", "stranger")}


@pytest.fixture
def bucket(users: UsersCluster, keys: dict[str, tuple[str, str]]) -> str:
    """A bucket with the object `o`, made by the writer's token."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    users.as_admin("mb", f"ais://{name}")
    s3_client(users, keys["writer"]).put_object(Bucket=name, Key="o", Body=BODY)
    return name


def test_boto3_reads_and_writes_with_the_keys_of_users(
    users: UsersCluster, keys: dict[str, tuple[str, str]], bucket: str
) -> None:
    reader = s3_client(users, keys["reader"])
    assert reader.get_object(Bucket=bucket, Key="o")["Body"].read() == BODY
    assert [o["Key"] for o in reader.list_objects_v2(Bucket=bucket)["Contents"]] == ["o"]
    assert reader.head_object(Bucket=bucket, Key="o")["ContentLength"] == len(BODY)


def denied(call: Callable[[], Any]) -> str:
    with pytest.raises(ClientError) as refused:
        call()
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    return str(refused.value.response["Error"]["Code"])


def test_the_key_of_a_reader_may_not_write(
    users: UsersCluster, keys: dict[str, tuple[str, str]], bucket: str
) -> None:
    reader = s3_client(users, keys["reader"])
    assert denied(lambda: reader.put_object(Bucket=bucket, Key="o", Body=b"x")) == "AccessDenied"
    assert denied(lambda: reader.delete_object(Bucket=bucket, Key="o")) == "AccessDenied"
    assert denied(lambda: reader.create_bucket(Bucket="of-a-reader")) == "AccessDenied"
    assert reader.get_object(Bucket=bucket, Key="o")["Body"].read() == BODY


def test_keys_without_a_right_and_unknown_keys_are_refused(
    users: UsersCluster, keys: dict[str, tuple[str, str]], bucket: str
) -> None:
    def read(key: tuple[str, str]) -> str:
        s3 = s3_client(users, key)
        return denied(lambda: s3.get_object(Bucket=bucket, Key="o"))

    assert read(keys["stranger"]) == "AccessDenied"
    assert read((keys["reader"][0], "another-secret")) == "SignatureDoesNotMatch"
    assert read(("FBUNKNOWN", "secret")) == "InvalidAccessKeyId"
    assert read(("forebay", "forebaysecret")) in ("InvalidAccessKeyId", "SignatureDoesNotMatch")


def test_the_keys_in_dev_json_work(users: UsersCluster, bucket: str) -> None:
    for key in users.cluster.info["s3_keys"]:
        s3_client(users, (key["access"], key["secret"])).list_buckets()
    admin = users.cluster.info["s3_keys"][-1]
    s3 = s3_client(users, (admin["access"], admin["secret"]))
    assert s3.get_object(Bucket=bucket, Key="o")["Body"].read() == BODY


def test_a_token_as_session_token_stands_in_for_a_key(users: UsersCluster, bucket: str) -> None:
    s3 = s3_client(users, ("unused", "unused"), users.token_of("reader"))
    assert s3.get_object(Bucket=bucket, Key="o")["Body"].read() == BODY
    assert denied(lambda: s3.put_object(Bucket=bucket, Key="o", Body=b"x")) == "AccessDenied"


def test_the_aws_command_copies_with_the_key_of_a_user(
    users: UsersCluster, keys: dict[str, tuple[str, str]], bucket: str, tmp_path: Path
) -> None:
    def aws(user: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
        command = [str(word) for word in (program("awscli", "aws"), *words)]
        env = users.s3_environment(keys[user])
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)

    (tmp_path / "up").write_bytes(BODY)
    up = aws("writer", "s3", "cp", tmp_path / "up", f"s3://{bucket}/copied")
    assert up.returncode == 0, up.stderr
    down = aws("reader", "s3", "cp", f"s3://{bucket}/copied", tmp_path / "down")
    assert down.returncode == 0, down.stderr
    assert (tmp_path / "down").read_bytes() == BODY
    for user in ("reader", "stranger"):
        refused = aws(user, "s3", "cp", tmp_path / "up", f"s3://{bucket}/refused")
        assert refused.returncode != 0 and "AccessDenied" in refused.stderr, refused.stderr


CONNECTOR = """
import sys
import torch
from s3torchconnector import S3Checkpoint, S3ClientConfig, S3MapDataset
from s3torchconnectorclient import S3Exception
bucket, endpoint = sys.argv[1:]
config = S3ClientConfig(force_path_style=True, max_attempts=1)
options = {"region": "us-east-1", "endpoint": endpoint, "s3client_config": config}
dataset = S3MapDataset.from_objects([f"s3://{bucket}/o"], **options)
print(len(dataset[0].read()))
checkpoint = S3Checkpoint(**options)
try:
    with checkpoint.writer(f"s3://{bucket}/epoch0.ckpt") as writer:
        torch.save({"step": 7}, writer)
except S3Exception as error:
    print("refused", "403" in str(error) or "AccessDenied" in str(error) or "Forbidden" in str(error))
else:
    with checkpoint.reader(f"s3://{bucket}/epoch0.ckpt") as reader:
        print(torch.load(reader, weights_only=True))
"""


@pytest.mark.parametrize(
    ("user", "last"), [("writer", "{'step': 7}"), ("reader", "refused True")]
)
def test_the_connector_reads_and_keeps_checkpoints_with_the_key_of_a_user(
    users: UsersCluster, keys: dict[str, tuple[str, str]], bucket: str, user: str, last: str
) -> None:
    # Its library reads the CAs of the system, which this variable replaces, and not AWS_CA_BUNDLE.
    env = users.s3_environment(keys[user]) | {"SSL_CERT_FILE": users.ca}
    command = [sys.executable, "-c", CONNECTOR, bucket, users.s3_url]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == [str(len(BODY)), last], done.stderr
