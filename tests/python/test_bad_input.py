"""Requests that cannot work are rejected at once, by a status and a message, to third-party clients."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from aistore.sdk import Client
from aistore.sdk.errors import AISError, ErrBckNotFound, ErrObjNotFound, ErrRemoteBckNotFound
from aistore.sdk.provider import Provider
from conftest import Cluster, Minio, free_ports

# The SDK tries a 5xx again for minutes: what is for good must come faster than its first pause.
PROMPT_MAX_S = 2.5


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Client:
    return Client(cluster.endpoint)


@pytest.fixture(scope="module")
def bucket(cluster: Cluster, client: Client) -> str:
    client.bucket("bad-input").create(exist_ok=True)
    return f"{cluster.endpoint}/v1/objects/bad-input"


@pytest.fixture
def run(forebay_bin: Path, cluster: Cluster) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`run("ls", "ais://b")`: the command line against the cluster of this file."""

    def call(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [forebay_bin, *args],
            env={**os.environ, "FOREBAY_ENDPOINT": cluster.endpoint, **env},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return call


def message(response: requests.Response) -> str:
    body = response.json()
    assert body["status"] == response.status_code
    return str(body["message"])


@contextlib.contextmanager
def promptly() -> Iterator[None]:
    """Asserts that the block ends promptly, without waiting for retries."""
    started = time.monotonic()
    yield
    assert time.monotonic() - started < PROMPT_MAX_S


def test_an_unknown_bucket(client: Client) -> None:
    unknown = client.bucket("unknown")
    with promptly():
        with pytest.raises(ErrBckNotFound, match="does not exist"):
            unknown.list_objects()
        with pytest.raises(ErrBckNotFound):
            unknown.object("x").get_reader().read_all()
        with pytest.raises(ErrBckNotFound):
            unknown.object("x").get_writer().put_content(b"x")
        with pytest.raises(AISError) as head:
            unknown.head()
    assert head.value.status_code == 404


@pytest.mark.parametrize(
    "name",
    ["*", ".", "", " ", "bucket/badname", "bucket and name", "#badname", "$badname", "~badname"],
)
def test_bad_bucket_names(client: Client, name: str) -> None:
    with pytest.raises(AISError) as refused:
        client.bucket(name).create()
    assert 400 <= refused.value.status_code < 500


@pytest.mark.parametrize(
    "name", ["nul%00byte", "x" * 1025, "%C3%A4" * 513, "trail/", "not-utf8-%FF"]
)
def test_bad_object_names(bucket: str, client: Client, name: str) -> None:
    refused = requests.put(f"{bucket}/{name}", data=b"x", timeout=10)
    assert refused.status_code == 400
    assert message(refused)
    assert client.bucket("bad-input").list_all_objects(prefix=name[:3]) == []


def test_a_missing_object(bucket: str, client: Client) -> None:
    with promptly(), pytest.raises(ErrObjNotFound, match="ais://bad-input/missing"):
        client.bucket("bad-input").object("missing").get_reader().read_all()
    head = requests.head(f"{bucket}/missing", allow_redirects=True, timeout=10)
    assert head.status_code == 404
    assert "ais://bad-input/missing" in head.headers["Hdr-Error"]


def test_a_range_past_the_end(bucket: str) -> None:
    requests.put(f"{bucket}/fifty", data=b"x" * 50, timeout=10).raise_for_status()
    past = requests.get(f"{bucket}/fifty", headers={"Range": "bytes=500-600"}, timeout=10)
    assert past.status_code == 416
    assert past.headers["Content-Range"] == "bytes */50"
    assert past.json()["tcode"] == "ErrRangeNotSatisfiable"
    several = requests.get(f"{bucket}/fifty", headers={"Range": "bytes=0-1,3-4"}, timeout=10)
    assert several.status_code == 416
    cut = requests.get(f"{bucket}/fifty", headers={"Range": "bytes=40-600"}, timeout=10)
    assert (cut.status_code, len(cut.content)) == (206, 10)


def test_a_wrong_checksum(bucket: str, client: Client) -> None:
    wrong = {"Ais-Checksum-Type": "xxhash2", "Ais-Checksum-Value": "0" * 16}
    with promptly():
        refused = requests.put(f"{bucket}/wrong", data=b"hello", headers=wrong, timeout=10)
    assert refused.status_code == 400
    assert "26c7827d889f6da3" in message(refused)
    assert refused.json()["tcode"] == "ErrBadCksum"
    assert client.bucket("bad-input").list_all_objects(prefix="wrong") == []
    unknown = {"Ais-Checksum-Type": "crc7", "Ais-Checksum-Value": "00"}
    refused = requests.put(f"{bucket}/wrong", data=b"x", headers=unknown, timeout=10)
    assert refused.status_code == 400


def test_wrong_credentials(start_cluster: Callable[..., Cluster], minio: Minio) -> None:
    cluster = start_cluster(targets=1, env={**minio.env, "AWS_SECRET_ACCESS_KEY": "wrong"})
    with promptly(), pytest.raises(AISError) as refused:
        Client(cluster.endpoint).bucket("any-bucket", provider=Provider.AMAZON).list_objects()
    assert refused.value.status_code == 403
    assert "AWS_ACCESS_KEY_ID" in str(refused.value)


def test_a_missing_cloud_bucket(start_cluster: Callable[..., Cluster], minio: Minio) -> None:
    cluster = start_cluster(targets=1, env=minio.env)
    bucket = Client(cluster.endpoint).bucket("no-such-bucket", provider=Provider.AMAZON)
    with pytest.raises(ErrRemoteBckNotFound, match="s3://no-such-bucket"):
        bucket.list_objects()


def test_an_unreachable_cloud(start_cluster: Callable[..., Cluster]) -> None:
    address = f"http://127.0.0.1:{free_ports(1)}"
    env = {
        "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": address,
    }  # fmt: skip
    cluster = start_cluster(targets=1, env=env)
    answer = requests.get(
        f"{cluster.endpoint}/v1/objects/far/x", params={"provider": "aws"}, timeout=60
    )
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) > 0
    assert address.rpartition(":")[2] in answer.text


def test_a_cluster_that_is_down(forebay_bin: Path) -> None:
    endpoint = f"http://127.0.0.1:{free_ports(1)}"
    started = time.monotonic()
    done = subprocess.run(
        [forebay_bin, "ls", "ais://b", "--timeout", "2s"],
        env={**os.environ, "FOREBAY_ENDPOINT": endpoint},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 7
    assert sum(line.startswith("error: ") for line in done.stderr.splitlines()) == 1
    assert endpoint in done.stderr
    assert time.monotonic() - started >= 1


def test_exit_codes(run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    port = str(free_ports(1))
    for code, args in (
        (2, ["ls", "ais://bad name"]),
        (2, ["no-such-command"]),
        (2, ["target", "--config", "/no/such/file"]),
        (2, ["dev", "--dir", str(tmp_path), "--port", "40000"]),
        (4, ["ls", "ais://unknown"]),
        (4, ["cat", "ais://unknown/x"]),
        (11, ["serve", "--dir", "/dev/null/folder", "--port", port]),
    ):
        done = run(*args)
        assert done.returncode == code, (args, done.stderr)
        assert done.stderr.strip(), args
        assert "panicked" not in done.stderr


def test_an_unknown_setting_is_refused_with_the_nearest_name(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    config = tmp_path / "forebay.toml"
    config.write_text("[cache]\nhihg = 90\n")
    done = run("target", "--config", str(config))
    assert done.returncode == 2
    assert "did you mean `high`" in done.stderr
    done = run("serve", "--dir", str(tmp_path), FOREBAY_LISTEN__HTPP="x")
    assert done.returncode == 2
    assert "did you mean `http`" in done.stderr


def test_a_port_in_use_is_named(
    run: Callable[..., subprocess.CompletedProcess[str]], cluster: Cluster, tmp_path: Path
) -> None:
    port = cluster.endpoint.rpartition(":")[2]
    for command in ("serve", "dev"):
        done = run(command, "--dir", str(tmp_path), "--port", port)
        assert done.returncode == 10, done.stderr
        assert port in done.stderr
