"""Checkpoints in a bucket of a cloud: read cold, replaced, refused."""

from __future__ import annotations

import http.client
import http.server
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import forebay
import pytest
import torch
from conftest import Cluster, Minio
from forebay_torch import Checkpoint

WEIGHT = torch.arange(10 << 20, dtype=torch.float32)


class Door(http.server.BaseHTTPRequestHandler):
    """What stands before MinIO and, once told to, refuses everything that writes."""

    protocol_version = "HTTP/1.1"
    address = ""
    refuses = False

    def forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.refuses and self.command in ("PUT", "POST"):
            status, headers, content = 403, [], b"<Error><Code>AccessDenied</Code></Error>"
        else:
            there = http.client.HTTPConnection(self.address, timeout=30)
            # With the name that was asked for: it is part of what was signed.
            there.request(self.command, self.path, body, dict(self.headers))
            answer = there.getresponse()
            status, headers, content = answer.status, answer.getheaders(), answer.read()
            there.close()
        self.send_response(status)
        length = next((v for k, v in headers if k.lower() == "content-length"), str(len(content)))
        for key, value in headers:
            if key.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(key, value)
        self.send_header("content-length", length)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = forward

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def door(minio: Minio) -> Iterator[tuple[str, type[Door]]]:
    """Its URL, and where it is told."""
    own = type("OwnDoor", (Door,), {"address": minio.endpoint.removeprefix("http://")})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), own)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", own
    server.shutdown()
    server.server_close()


def bucket_in(minio: Minio) -> tuple[str, Any]:
    """A new bucket, and a client that goes past the cluster."""
    own = boto3.client(
        "s3",
        endpoint_url=minio.endpoint,
        aws_access_key_id=minio.env["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=minio.env["AWS_SECRET_ACCESS_KEY"],
        region_name=minio.env["AWS_REGION"],
    )
    name = f"t-{uuid.uuid4().hex[:12]}"
    own.create_bucket(Bucket=name)
    return name, own


def test_DF14_DF17_a_checkpoint_in_a_cloud_is_saved_there_and_read_cold(
    start_cluster: Callable[..., Cluster], minio: Minio
) -> None:
    name, own = bucket_in(minio)
    running = start_cluster(targets=2, env=minio.env)
    client = forebay.Client(running.endpoint, timeout=30)
    checkpoint = Checkpoint(bucket_name=f"s3://{name}/run", storage_client=client)
    checkpoint.save({"weight": WEIGHT}, "1.pt")
    stored = own.head_object(Bucket=name, Key="run/1.pt")["ContentLength"]
    assert stored > WEIGHT.nbytes
    for _ in ("cold", "warm"):
        client.bucket(name, "s3").evict(prefix="run/").wait()
        for _ in ("first", "second"):
            assert torch.equal(checkpoint.load("1.pt")["weight"], WEIGHT)
    # What others put into the bucket counts as well.
    own.copy_object(Bucket=name, Key="run/2.pt", CopySource=f"{name}/run/1.pt")
    assert checkpoint.latest() == "2.pt"
    assert checkpoint.prune() == ["1.pt"]
    assert [o["Key"] for o in own.list_objects_v2(Bucket=name)["Contents"]] == ["run/2.pt"]


def test_DF16_a_part_that_the_cloud_refuses_leaves_the_old_checkpoint(
    start_cluster: Callable[..., Cluster], minio: Minio, door: tuple[str, type[Door]]
) -> None:
    name, own = bucket_in(minio)
    url, told = door
    running = start_cluster(targets=1, env={**minio.env, "AWS_ENDPOINT_URL": url})
    client = forebay.Client(running.endpoint, timeout=30)
    checkpoint = Checkpoint(bucket_name=f"s3://{name}", storage_client=client)
    checkpoint.save("old", "c.pt")
    told.refuses = True
    for path in ("c.pt", "new.pt"):
        with pytest.raises(forebay.AccessDenied, match=name):
            checkpoint.save(WEIGHT, path)
    later = checkpoint.save_async(WEIGHT, "c.pt")
    with pytest.raises(forebay.AccessDenied):
        later.result(60)
    told.refuses = False
    assert checkpoint.load("c.pt") == "old"
    assert [o["Key"] for o in own.list_objects_v2(Bucket=name)["Contents"]] == ["c.pt"]
