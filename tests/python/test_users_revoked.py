"""Revoked tokens stop for every client within two seconds, on targets as on gateways."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

import pytest
import requests
from botocore.exceptions import ClientError
from conftest import UsersCluster
from test_users_s3 import s3_client

forebay = pytest.importorskip("forebay")

REVOKED_WITHIN_S = 2.0
BODY = b"here" * 1000


@pytest.fixture
def bucket(users: UsersCluster) -> str:
    """Name of a bucket with the object `o`."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    client = forebay.Client(users.endpoint, ca_file=users.ca, token=users.admin_token)
    client.bucket(name).create().object("o").put(BODY)
    return name


def seconds_until(is_refused: Callable[[], bool]) -> float:
    """Seconds from now until the condition holds."""
    start = time.monotonic()
    while not is_refused():
        assert time.monotonic() - start < 3 * REVOKED_WITHIN_S, "still accepted"
        time.sleep(0.01)
    return time.monotonic() - start


def test_targets_refuse_a_revoked_token_within_two_seconds(
    users: UsersCluster, bucket: str
) -> None:
    token = users.token_of("reader")
    headers = {"Authorization": f"Bearer {token}"}
    urls = [f"{t['url']}/v1/objects/{bucket}/o?provider=ais" for t in users.cluster.targets]

    def statuses() -> set[int]:
        options = {"headers": headers, "verify": users.ca, "timeout": 10, "allow_redirects": False}
        return {requests.get(url, **options).status_code for url in urls}

    assert 200 in statuses()
    users.as_admin("auth", "token", "revoke", "-", text=token)
    assert seconds_until(lambda: statuses() <= {401, 403}) < REVOKED_WITHIN_S


def test_our_client_with_a_grant_is_refused_within_two_seconds(
    users: UsersCluster, bucket: str
) -> None:
    token = users.token_of("reader")
    client = forebay.Client(users.endpoint, ca_file=users.ca, token=token, timeout=10)
    there = client.bucket(bucket)
    assert there.object("o").get().read_all() == BODY
    assert [bytes(body) for body in client.get_many([(there, "o")])] == [BODY]
    users.as_admin("auth", "token", "revoke", "--user", "reader")

    def refused(call: Callable[[], object]) -> bool:
        try:
            call()
        except forebay.AccessDenied as error:
            return bool(error.status == 401)
        return False

    start = time.monotonic()
    seconds_until(lambda: refused(lambda: there.object("o").get().read_all()))
    seconds_until(lambda: refused(lambda: client.get_many([(there, "o")])))
    assert time.monotonic() - start < REVOKED_WITHIN_S


def test_a_removed_key_of_s3_is_refused_within_two_seconds(
    users: UsersCluster, bucket: str
) -> None:
    access, secret = users.key_of("reader")
    s3 = s3_client(users, (access, secret))
    assert s3.get_object(Bucket=bucket, Key="o")["Body"].read() == BODY
    users.as_admin("auth", "key", "remove", access, "--yes")

    def refused() -> bool:
        try:
            s3.get_object(Bucket=bucket, Key="o")
        except ClientError as error:
            return int(error.response["ResponseMetadata"]["HTTPStatusCode"]) == 403
        return False

    assert seconds_until(refused) < REVOKED_WITHIN_S
