"""The server of this user's own requires a token, which all clients of this user find by themselves."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forebay_fixture import binary
from test_local import home, server

import forebay
from forebay import local

__all__ = ["home"]
FOREIGN = ("AIS_AUTHN_TOKEN", "AIS_AUTHN_TOKEN_FILE", "FOREBAY_TOKEN", "FOREBAY_TOKEN_FILE")


@pytest.fixture
def bucket(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[forebay.Bucket]:
    """A bucket on the server of this user's own, with the object `o`."""
    for name in FOREIGN:
        monkeypatch.delenv(name, raising=False)
    made = forebay.Client().bucket("b").create()
    made.object("o").put(b"here")
    yield made


def status(url: str, token: str | None = None) -> int:
    request = urllib.request.Request(url)
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def description() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((local.default_folder() / "serve.json").read_text())
    return found


def test_requests_without_the_token_are_refused_by_both_nodes(bucket: forebay.Bucket) -> None:
    client = bucket.client
    nodes = client.cluster().info()["nodes"]
    token = description()["token"]
    for node in nodes:
        for path in ("/metrics", "/v1/objects/b/o", "/v1/daemon?what=status"):
            assert status(node["url"] + path) == 401, f"{node['role']} {path}"
        assert status(f"{node['url']}/healthz") == 200
        assert status(f"{node['url']}/metrics", token) == 200
    assert status(f"{client.endpoint}/api/v1/map") == 401
    assert status(f"{client.endpoint}/api/v1/map", f"{token}x") == 401


def test_only_this_user_can_read_the_token(bucket: forebay.Bucket) -> None:
    folder = local.default_folder()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name in ("token", "serve.json", "secret"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600, name
    found = description()
    assert found["token_file"] == str((folder / "token").resolve())
    assert (folder / "token").read_text().strip() == found["token"]
    assert found["token"] not in (folder / "log").read_text()
    assert found["token"] not in repr(server().running())


def test_a_client_that_is_given_the_endpoint_finds_the_token(
    bucket: forebay.Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = bucket.client.endpoint
    named = forebay.Client(endpoint).bucket("b")
    assert named.object("o").get().read_all() == b"here"
    # A token of another cluster.
    monkeypatch.setenv("FOREBAY_TOKEN", "planted")
    assert forebay.Client(endpoint).bucket("b").object("o").get().read_all() == b"here"
    with pytest.raises(forebay.AccessDenied):
        forebay.Client(endpoint, token="planted").bucket("b").object("o").get().read_all()


@pytest.mark.parametrize("names_endpoint", [True, False])
def test_the_command_line_finds_server_and_token(
    bucket: forebay.Bucket, names_endpoint: bool
) -> None:
    env = {name: value for name, value in os.environ.items() if name != "FOREBAY_ENDPOINT"}
    if names_endpoint:
        env["FOREBAY_ENDPOINT"] = bucket.client.endpoint
    elif not is_free(7400):
        pytest.skip("a server listens at the default endpoint")
    command = [str(binary()), "cat", "ais://b/o"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout == "here", done.stderr


def test_a_copy_of_its_description_at_another_user_does_not_count(
    bucket: forebay.Bucket, tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    file = local.default_folder() / "serve.json"
    os.chown(file, 65534, 65534)
    assert local.LocalServer(local.default_folder())._described() is None
    command = [str(binary()), "auth", "whoami", "--endpoint", bucket.client.endpoint]
    assert subprocess.run(command, capture_output=True, timeout=60).returncode != 0
    os.chown(file, os.geteuid(), os.getegid())


def test_a_restart_makes_another_token_and_the_earlier_one_is_invalid(
    bucket: forebay.Bucket,
) -> None:
    earlier = description()
    assert server().stop()
    assert not (local.default_folder() / "token").exists()
    again = forebay.Client()
    assert again.bucket("b").object("o").get().read_all() == b"here"
    later = description()
    assert later["token"] != earlier["token"] and later["s3_keys"] != earlier["s3_keys"]
    assert status(f"{again.endpoint}/metrics", earlier["token"]) == 401


def test_boto3_uses_the_key_in_the_description(bucket: forebay.Bucket) -> None:
    boto3 = pytest.importorskip("boto3")
    from botocore.config import Config
    from botocore.exceptions import ClientError

    running = server().running()
    assert running is not None and running.s3_key is not None

    def client(access: str, secret: str) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=f"{running.endpoint}/s3",
            region_name="us-east-1",
            aws_access_key_id=access,
            aws_secret_access_key=secret,
            config=Config(retries={"max_attempts": 1}),
        )

    assert client(*running.s3_key).get_object(Bucket="b", Key="o")["Body"].read() == b"here"
    for access, secret in [("forebay", "forebaysecret"), (running.s3_key[0], "another")]:
        with pytest.raises(ClientError) as refused:
            client(access, secret).get_object(Bucket="b", Key="o")
        assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


OTHERS = """
import os, boto3
from aistore.sdk import Client
there = Client(os.environ["AIS_ENDPOINT"]).bucket("b")
print(there.object("o").get_reader().read_all(), there.object("o").get_reader(direct=True).read_all())
s3 = boto3.client("s3", region_name="us-east-1")
print(s3.get_object(Bucket="b", Key="o")["Body"].read())
"""


def test_other_programs_find_it_by_the_variables_that_a_command_prints(
    bucket: forebay.Bucket,
) -> None:
    pytest.importorskip("aistore")
    pytest.importorskip("boto3")
    shell = 'eval "$("$0" -m forebay.local env)"; exec "$0" -c "$1"'
    command = ["sh", "-c", shell, sys.executable, OTHERS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "b'here' b'here'\nb'here'\n", done.stderr


def test_a_process_that_the_loader_starts_has_the_token(home: Path) -> None:
    code = """
import multiprocessing as m, forebay
def read(b): return b.object("o").get().read_all()
if __name__ == "__main__":
    b = forebay.Client().bucket("b").create(); b.object("o").put(b"x")
    for start in ("fork", "spawn"):
        with m.get_context(start).Pool(1) as pool:
            print(pool.apply(read, [b]))
"""
    script = home / "script.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "b'x'\nb'x'\n", done.stderr
