"""Datasets over buckets of a cloud: rights, and one state of the data."""

from __future__ import annotations

import asyncio
import http.client
import http.server
import json
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import forebay
import pytest
from conftest import Cluster, Minio
from forebay_torch import IterableDataset, MapDataset, prefetch_order
from forebay_torch.datapipes import IterableWrapper


def s3_client(minio: Minio, service: str = "s3") -> Any:
    """A client that goes past the cluster."""
    return boto3.client(
        service,
        endpoint_url=minio.endpoint,
        aws_access_key_id=minio.env["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=minio.env["AWS_SECRET_ACCESS_KEY"],
        region_name=minio.env["AWS_REGION"],
    )


def reader_of(minio: Minio, bucket: str) -> dict[str, str]:
    """The keys of somebody who may list and read this bucket and do nothing else."""
    sts = s3_client(minio, "sts")
    may_read = {
        "Effect": "Allow",
        "Action": ["s3:GetObject", "s3:ListBucket"],
        "Resource": [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"],
    }
    role = sts.assume_role(
        RoleArn="arn:aws:iam::000000000000:role/reader",
        RoleSessionName="reader",
        Policy=json.dumps({"Version": "2012-10-17", "Statement": [may_read]}),
    )["Credentials"]
    return {
        "AWS_ACCESS_KEY_ID": role["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": role["SecretAccessKey"],
        "AWS_SESSION_TOKEN": role["SessionToken"],
    }


@pytest.fixture
def cloud(minio: Minio) -> str:
    """A bucket of MinIO with ten objects."""
    own = s3_client(minio)
    name = f"t-{uuid.uuid4().hex[:12]}"
    own.create_bucket(Bucket=name)
    for i in range(10):
        own.put_object(Bucket=name, Key=f"train/{i}", Body=b"x" * 50)
    return name


def test_a_missing_right_to_read_is_a_PermissionError_at_construction(
    start_cluster: Callable[..., Cluster], minio: Minio, cloud: str
) -> None:
    refused = start_cluster(targets=1, env={**minio.env, "AWS_SECRET_ACCESS_KEY": "not-the-secret"})
    client = forebay.Client(refused.endpoint, timeout=15)
    for kind in (MapDataset, IterableDataset):
        with pytest.raises(PermissionError, match=cloud):
            kind(client.bucket(cloud, "s3"))


def test_a_missing_right_to_write_does_not_matter_for_reading(
    start_cluster: Callable[..., Cluster], minio: Minio, cloud: str
) -> None:
    running = start_cluster(targets=1, env={**minio.env, **reader_of(minio, cloud)})
    bucket = forebay.Client(running.endpoint, timeout=15).bucket(cloud, "s3")
    for kind in (MapDataset, IterableDataset):
        assert dict(kind(bucket)) == {f"train/{i}": b"x" * 50 for i in range(10)}
    with pytest.raises(PermissionError, match=cloud):
        bucket.object("train/new").put(b"refused")


def test_a_snapshot_of_a_cloud_reads_what_it_listed_or_says_ObjectChanged(
    start_cluster: Callable[..., Cluster], minio: Minio, cloud: str
) -> None:
    running = start_cluster(targets=2, env=minio.env)
    bucket = forebay.Client(running.endpoint, timeout=15).bucket(cloud, "s3")
    own = s3_client(minio)
    cold = MapDataset(bucket, snapshot=True)
    own.put_object(Bucket=cloud, Key="train/3", Body=b"y" * 50)
    assert cold[2] == ("train/2", b"x" * 50)
    with pytest.raises(forebay.ObjectChanged, match="train/3 changed since"):
        cold[3]
    warm = MapDataset(bucket, snapshot=True)
    assert [warm[i][1][:1] for i in (2, 3)] == [b"x", b"y"]
    assert dict(IterableDataset(bucket, snapshot=True)) == dict(warm)


def test_a_cloud_is_read_once_although_the_order_was_announced(
    start_cluster: Callable[..., Cluster], minio: Minio, cloud: str
) -> None:
    running = start_cluster(targets=2, env=minio.env)
    dataset = MapDataset(forebay.Client(running.endpoint, timeout=15).bucket(cloud, "s3"))
    for _ in range(2):
        names = [dataset[row][0] for row in prefetch_order(dataset, range(10), ahead=10)]
        assert names == [f"train/{i}" for i in range(10)]
    gets = running.count("forebay_backend_requests_total", op="get", result="ok")
    assert gets <= 10


def test_a_private_bucket_is_read_with_the_clusters_own_credentials(
    start_cluster: Callable[..., Cluster], minio: Minio, cloud: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Roles, profiles and keys are the targets': a worker that reads has none of them."""
    running = start_cluster(targets=2, env=minio.env)
    for name in minio.env:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_REGION", "nowhere-1")
    client = forebay.Client(running.endpoint, timeout=15)
    prefixes = IterableWrapper([f"s3://{cloud}/train/"])
    urls = prefixes.list_files_by_s3(region="us-east-1", client=client)
    files = urls.load_files_by_s3(region="us-east-1", client=client)
    assert {url: file.read() for url, file in files} == {
        f"s3://{cloud}/train/{i}": b"x" * 50 for i in range(10)
    }


def test_a_profile_gives_the_cluster_its_credentials(
    start_cluster: Callable[..., Cluster], minio: Minio, cloud: str, tmp_path: Path
) -> None:
    keys, config = tmp_path / "credentials", tmp_path / "config"
    keys.write_text(
        f"[training]\naws_access_key_id = {minio.env['AWS_ACCESS_KEY_ID']}\n"
        f"aws_secret_access_key = {minio.env['AWS_SECRET_ACCESS_KEY']}\n"
    )
    config.write_text("[profile training]\nregion = us-east-1\n")
    env = {
        "AWS_PROFILE": "training",
        "AWS_CONFIG_FILE": str(config),
        "AWS_SHARED_CREDENTIALS_FILE": str(keys),
        "AWS_ENDPOINT_URL": minio.endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    client = forebay.Client(start_cluster(targets=1, env=env).endpoint, timeout=15)
    assert client.bucket(cloud, "s3").object("train/3").get().read_all() == b"x" * 50


class RoleNames(http.server.BaseHTTPRequestHandler):
    """A proxy of MinIO that adds the name of the role to replies, which MinIO leaves empty."""

    protocol_version = "HTTP/1.1"
    address = ""

    def forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        there = http.client.HTTPConnection(self.address, timeout=30)
        there.request(self.command, self.path, body, dict(self.headers))
        answer = there.getresponse()
        name = b"<Arn>arn:aws:sts::123456789012:assumed-role/reader/session</Arn>"
        content = answer.read().replace(b"<Arn></Arn>", name)
        length = answer.headers["content-length"] if self.command == "HEAD" else str(len(content))
        self.send_response(answer.status)
        for key, value in answer.getheaders():
            if key.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(key, value)
        self.send_header("content-length", length or "0")
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_HEAD = forward

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def role_giver(minio: Minio) -> Iterator[str]:
    own = type("Own", (RoleNames,), {"address": minio.endpoint.removeprefix("http://")})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), own)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_a_role_is_assumed_by_the_cluster_and_not_by_workers(
    start_cluster: Callable[..., Cluster],
    minio: Minio,
    role_giver: str,
    cloud: str,
    tmp_path: Path,
) -> None:
    """The session's own keys reach the bucket, which the ones in the file are only traded for."""
    keys, config = tmp_path / "credentials", tmp_path / "config"
    keys.write_text(
        f"[base]\naws_access_key_id = {minio.env['AWS_ACCESS_KEY_ID']}\n"
        f"aws_secret_access_key = {minio.env['AWS_SECRET_ACCESS_KEY']}\n"
    )
    config.write_text(
        "[profile base]\nregion = us-east-1\n[profile training]\nregion = us-east-1\n"
        "role_arn = arn:aws:iam::123456789012:role/reader\nsource_profile = base\n"
    )
    env = {
        "AWS_PROFILE": "training",
        "AWS_CONFIG_FILE": str(config),
        "AWS_SHARED_CREDENTIALS_FILE": str(keys),
        "AWS_ENDPOINT_URL": role_giver,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    client = forebay.Client(start_cluster(targets=1, env=env).endpoint, timeout=15)
    urls = IterableWrapper([f"s3://{cloud}/train/"]).load_files_by_s3(client=client)
    assert [file.read() for _, file in urls] == [b"x" * 50] * 10
    # A role that nobody grants is reported as such.
    keys.write_text("[base]\naws_access_key_id = nobody\naws_secret_access_key = nothing\n")
    refused = forebay.Client(start_cluster(targets=1, env=env).endpoint, timeout=15)
    with pytest.raises(forebay.ForebayError, match=cloud):
        refused.bucket(cloud, "s3").object("train/3").get().read_all()


def test_markers_of_folders_in_a_cloud_are_no_files(
    start_cluster: Callable[..., Cluster], minio: Minio, cloud: str
) -> None:
    for folder in ("train/", "train/sub/"):
        s3_client(minio).put_object(Bucket=cloud, Key=folder, Body=b"")
    client = forebay.Client(start_cluster(targets=1, env=minio.env).endpoint, timeout=15)
    for prefix in (f"s3://{cloud}", f"s3://{cloud}/", f"s3://{cloud}/train"):
        urls = IterableWrapper([prefix]).list_files_by_s3(client=client)
        assert list(urls) == [f"s3://{cloud}/train/{i}" for i in range(10)]


def test_the_bill_of_a_bucket_counts_each_object_once_and_what_was_saved(
    start_cluster: Callable[..., Cluster], minio: Minio, cloud: str
) -> None:
    running = start_cluster(targets=2, env=minio.env)
    bucket = forebay.Client(running.endpoint, timeout=15).bucket(cloud, "s3")
    for _ in range(3):
        for i in range(10):
            assert bucket.object(f"train/{i}").get().read_all() == b"x" * 50
    bucket.object("new").put(b"y" * 70)
    info = bucket.info()
    assert {key: info[key] for key in bucket.head()} == bucket.head()
    bill = info["bill"]
    assert (bill["targets"], bill["away"]) == (2, 0)
    assert (bill["requests"]["b"], bill["fetched_bytes"]) == (10, 500)
    assert (bill["requests"]["a"], bill["sent_bytes"]) == (1, 70)
    assert bill["saved_bytes"] == 2 * 500


def test_the_first_listing_of_a_cloud_says_once_what_it_cost(
    start_cluster: Callable[..., Cluster],
    minio: Minio,
    cloud: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    client = forebay.Client(start_cluster(targets=2, env=minio.env).endpoint, timeout=15)
    for _ in range(2):
        assert len(MapDataset(f"s3://{cloud}/train/", storage_client=client)) == 10
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "listed" in line]
    found = re.match(
        rf"forebay: listed s3://{cloud}/train/ with 1 request to the cloud, (\d\.\d+) KiB: 10 objects; ", line
    )
    assert found and 1 < float(found[1]) < 9, line


def test_the_cost_of_a_listing_is_hidden_with_the_other_notices(
    start_cluster: Callable[..., Cluster],
    minio: Minio,
    cloud: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    running = start_cluster(targets=1, env=minio.env)
    client = forebay.Client(running.endpoint, timeout=15, notices=False)
    assert len(client.bucket(cloud, "s3").list_snapshot()) == 10
    assert "listed" not in capfd.readouterr().err


def test_the_bill_is_the_same_for_coroutines(
    start_cluster: Callable[..., Cluster], minio: Minio, cloud: str
) -> None:
    running = start_cluster(targets=1, env=minio.env)

    async def read_and_ask() -> dict[str, Any]:
        bucket = forebay.AsyncClient(running.endpoint, timeout=15).bucket(cloud, "s3")
        await bucket.object("train/0").get().read_all()
        return await bucket.info()

    assert asyncio.run(read_and_ask())["bill"]["requests"]["b"] == 1
