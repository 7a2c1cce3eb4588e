"""AIStore's Python SDK in a cluster with users and TLS: tokens, logins, and reads from targets."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
import requests
from aistore.sdk import Client
from aistore.sdk.authn import AuthNClient
from aistore.sdk.bucket import Bucket
from aistore.sdk.errors import AISError, APIRequestError
from conftest import UsersCluster
from forebay_users import FOREIGN_VARIABLES

BODIES = {f"o{n}": f"content {n}".encode() * 100 for n in range(8)}


@pytest.fixture(scope="module", params=["users", "users_without_tls"], ids=["https", "http"])
def users(request: pytest.FixtureRequest) -> UsersCluster:
    """A cluster with users, with and without TLS."""
    running: UsersCluster = request.getfixturevalue(request.param)
    return running


@pytest.fixture
def client(users: UsersCluster, monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], Client]:
    """`client("reader")` -> AIStore's client with a token of this user; `None` for no token."""
    for name in FOREIGN_VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def make(user: str | None) -> Client:
        token = None if user is None else users.token_of(user)
        return Client(users.endpoint, ca_cert=users.ca, token=token)

    return make


@pytest.fixture
def bucket(client: Callable[[str | None], Client]) -> Bucket:
    """A bucket with objects, at the client of the writer."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    client("root").bucket(name).create()
    made = client("writer").bucket(name)
    for name, body in BODIES.items():
        made.object(name).get_writer().put_content(body)
    return made


def status_of(error: APIRequestError) -> int:
    return int(error.status_code)


def test_objects_are_read_through_redirects(
    bucket: Bucket, client: Callable[[str | None], Client]
) -> None:
    reader = client("reader").bucket(bucket.name)
    assert {entry.name for entry in reader.list_all_objects()} == set(BODIES)
    assert {name: reader.object(name).get_reader().read_all() for name in BODIES} == BODIES


def test_targets_verify_the_clients_own_token_on_direct_reads(
    bucket: Bucket, client: Callable[[str | None], Client]
) -> None:
    reader = client("reader").bucket(bucket.name)
    for name, body in BODIES.items():
        direct = reader.object(name).get_reader(direct=True)
        assert direct.read_all() == body
        assert direct.attributes.size == len(body)


@pytest.mark.parametrize(("user", "statuses"), [(None, {401, 403}), ("stranger", {403})])
def test_direct_reads_without_a_right_are_refused_by_targets(
    bucket: Bucket, users: UsersCluster, user: str | None, statuses: set[int]
) -> None:
    token = {} if user is None else {"Authorization": f"Bearer {users.token_of(user)}"}
    for target in users.cluster.targets:
        for method in ("GET", "HEAD"):
            url = f"{target['url']}/v1/objects/{bucket.name}/o1?provider=ais"
            answer = requests.request(
                method, url, headers=token, verify=users.ca, timeout=10, allow_redirects=False
            )
            assert answer.status_code in statuses, f"{method} {target['id']}"
            assert BODIES["o1"] not in answer.content


def test_a_client_without_a_token_gets_no_map_to_read_directly(
    bucket: Bucket, client: Callable[[str | None], Client]
) -> None:
    nobody = client(None).bucket(bucket.name)
    with pytest.raises(AISError) as refused:
        nobody.object("o1").get_reader(direct=True).read_all()
    assert status_of(refused.value) in (401, 403)
    with pytest.raises(AISError) as refused:
        nobody.object("o1").get_reader().read_all()
    assert status_of(refused.value) in (401, 403)


def test_a_reader_may_not_write(bucket: Bucket, client: Callable[[str | None], Client]) -> None:
    reader = client("reader").bucket(bucket.name)
    for change in (
        lambda: reader.object("new").get_writer().put_content(b"x"),
        lambda: reader.object("o1").delete(),
        lambda: client("reader").bucket("of-a-reader").create(),
    ):
        with pytest.raises(AISError) as refused:
            change()
        assert status_of(refused.value) == 403
    assert bucket.object("o1").get_reader().read_all() == BODIES["o1"]


def test_a_login_by_authn_gives_a_token_for_the_client(
    bucket: Bucket, users: UsersCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in FOREIGN_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    users.add_user("bob", "reader", password="planted-password-of-bob")
    authn = AuthNClient(users.endpoint, ca_cert=users.ca)
    token = authn.login("bob", "planted-password-of-bob")
    monkeypatch.setenv("AIS_AUTHN_TOKEN", token)
    there = Client(users.endpoint, ca_cert=users.ca).bucket(bucket.name)
    assert there.object("o2").get_reader().read_all() == BODIES["o2"]
    authn.logout()
    with pytest.raises(AISError):
        there.object("o2").get_reader().read_all()
