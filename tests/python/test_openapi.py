"""The description of the API is valid, and answers of real clusters agree with it."""

from __future__ import annotations

import copy
import io
import os
import tarfile
from pathlib import Path
from typing import Any

import forebay_openapi as api
import pytest
from conftest import Cluster, UsersCluster
from forebay_s3 import client, content

# Valid requests to all routes: seconds. (With several workers, schemathesis 4.32 fails now and then.)
QUICK = ["--mode", "positive", "--phases", "examples,coverage"]
# All methods, with invalid requests, too.
THOROUGH = ["--phases", "examples,coverage,fuzzing", "--max-examples", "25"]
LONG_TIMEOUT_S = 900

long_run = [
    pytest.mark.long,
    pytest.mark.hour,
    pytest.mark.skipif("FOREBAY_TEST_LONG" not in os.environ, reason="make api-test runs it"),
    pytest.mark.timeout(2 * LONG_TIMEOUT_S),
]


def make_objects(s3: Any) -> None:
    """The bucket of the examples, with an object and a shard."""
    s3.create_bucket(Bucket="images")
    shard = io.BytesIO()
    with tarfile.open(fileobj=shard, mode="w") as archive:
        member = tarfile.TarInfo("b.jpg")
        member.size = 200
        archive.addfile(member, io.BytesIO(content(200)))
    s3.put_object(Bucket="images", Key="shard-0.tar", Body=shard.getvalue())
    s3.put_object(Bucket="images", Key="a.jpg", Body=content(300))


@pytest.fixture(scope="module")
def document(cluster: Cluster) -> api.Document:
    make_objects(client(f"{cluster.endpoint}/s3"))
    return api.fetch(cluster.endpoint)


def test_the_document_is_one_of_openapi(document: api.Document, tmp_path: Path) -> None:
    done = api.validate(document, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_answers_agree_with_the_document(
    cluster: Cluster, document: api.Document, tmp_path: Path
) -> None:
    part = api.native_part(document, "gateways")
    done = api.send(part, cluster.endpoint, tmp_path, QUICK)
    assert done.returncode == 0, done.stdout[-6_000:]


def test_a_document_that_disagrees_with_an_answer_is_found(
    cluster: Cluster, document: api.Document, tmp_path: Path
) -> None:
    wrong = copy.deepcopy(document)
    wrong["components"]["schemas"]["LeaderReply"]["properties"]["leads"]["type"] = "string"
    part = api.native_part(wrong, "gateways")
    part["paths"] = {"/api/v1/leader": part["paths"]["/api/v1/leader"]}
    done = api.send(part, cluster.endpoint, tmp_path, QUICK)
    assert done.returncode == 1, done.stdout[-6_000:]
    assert "Response violates schema" in done.stdout


class TestLong:
    """All routes, with invalid requests; `make api-test`."""

    pytestmark = long_run

    def test_gateway(self, cluster: Cluster, document: api.Document, tmp_path: Path) -> None:
        part = api.native_part(document, "gateways")
        done = api.send(part, cluster.endpoint, tmp_path, THOROUGH, LONG_TIMEOUT_S)
        assert done.returncode == 0, done.stdout

    def test_target(self, cluster: Cluster, document: api.Document, tmp_path: Path) -> None:
        part = api.native_part(document, "targets")
        done = api.send(part, cluster.targets[0]["url"], tmp_path, THOROUGH, LONG_TIMEOUT_S)
        assert done.returncode == 0, done.stdout

    def test_gateway_with_users(
        self,
        users_without_tls: UsersCluster,
        document: api.Document,
        tmp_path: Path,
    ) -> None:
        users = users_without_tls
        access, secret = users.key_of("root")
        make_objects(client(users.s3_url, secret, access=access))
        part = api.native_part(document, "gateways")
        # The requests would revoke the token that they are sent with.
        del part["paths"]["/api/v1/auth/tokens"]
        for token in (users.admin_token, users.token_of("reader")):
            options = [*THOROUGH, "--header", f"Authorization: Bearer {token}"]
            done = api.send(part, users.endpoint, tmp_path, options, LONG_TIMEOUT_S)
            assert done.returncode == 0, done.stdout
