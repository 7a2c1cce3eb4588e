"""Checkpoints in a bucket of a cloud: read cold, replaced, refused."""

from __future__ import annotations

import http.client
import http.server
import json
import threading
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import forebay
import pytest
import torch
from conftest import Cluster, Minio
from forebay_torch import Checkpoint

WEIGHT = torch.arange(10 << 20, dtype=torch.float32)


class Door(http.server.BaseHTTPRequestHandler):
    """A proxy before MinIO that refuses all writes while ``refuses`` is set."""

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
    """The URL of the proxy, and the proxy."""
    own = type("OwnDoor", (Door,), {"address": minio.endpoint.removeprefix("http://")})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), own)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", own
    server.shutdown()
    server.server_close()


def keys(own: Any, name: str) -> list[str]:
    return [o["Key"] for o in own.list_objects_v2(Bucket=name).get("Contents", [])]


def client_before(
    start_cluster: Callable[..., Cluster], env: dict[str, str], targets: int = 1
) -> forebay.Client:
    """A client of a new cluster before the cloud that the environment names."""
    return forebay.Client(start_cluster(targets=targets, env=env).endpoint, timeout=30)


def written_back(client: forebay.Client, to: str) -> tuple[forebay.Bucket, Checkpoint]:
    """A new native bucket, and checkpoints in it that go to a cloud."""
    native = client.bucket("checkpoints").create()
    return native, Checkpoint(bucket_name=native.uri, storage_client=client, write_back=to)


def test_a_checkpoint_in_a_cloud_is_saved_there_and_read_cold(
    start_cluster: Callable[..., Cluster], minio: Minio
) -> None:
    name, own = minio.new_bucket()
    client = client_before(start_cluster, minio.env, targets=2)
    checkpoint = Checkpoint(bucket_name=f"s3://{name}/run", storage_client=client)
    checkpoint.save({"weight": WEIGHT}, "1.pt")
    stored = own.head_object(Bucket=name, Key="run/1.pt")["ContentLength"]
    assert stored > WEIGHT.nbytes
    for _ in ("cold", "warm"):
        client.bucket(name, "s3").evict(prefix="run/").wait()
        for _ in ("first", "second"):
            assert torch.equal(checkpoint.load("1.pt")["weight"], WEIGHT)
    # Objects that other clients put into the bucket count as well.
    own.copy_object(Bucket=name, Key="run/2.pt", CopySource=f"{name}/run/1.pt")
    assert checkpoint.latest() == "2.pt"
    assert checkpoint.prune() == ["1.pt"]
    assert keys(own, name) == ["run/2.pt"]


def test_a_part_that_the_cloud_refuses_leaves_the_old_checkpoint(
    start_cluster: Callable[..., Cluster], minio: Minio, door: tuple[str, type[Door]]
) -> None:
    name, own = minio.new_bucket()
    url, proxy = door
    client = client_before(start_cluster, {**minio.env, "AWS_ENDPOINT_URL": url})
    checkpoint = Checkpoint(bucket_name=f"s3://{name}", storage_client=client)
    checkpoint.save("old", "c.pt")
    proxy.refuses = True
    for path in ("c.pt", "new.pt"):
        with pytest.raises(forebay.AccessDenied, match=name):
            checkpoint.save(WEIGHT, path)
    later = checkpoint.save_async(WEIGHT, "c.pt")
    with pytest.raises(forebay.AccessDenied):
        later.result(60)
    proxy.refuses = False
    assert checkpoint.load("c.pt") == "old"
    assert keys(own, name) == ["c.pt"]


def test_a_checkpoint_of_a_native_bucket_is_written_back_to_the_cloud(
    start_cluster: Callable[..., Cluster], minio: Minio
) -> None:
    name, own = minio.new_bucket()
    client = client_before(start_cluster, minio.env, targets=2)
    native = client.bucket("checkpoints").create()
    checkpoint = Checkpoint(
        bucket_name=f"{native.uri}/run", storage_client=client, write_back=f"s3://{name}/backup"
    )
    for step in (1, 2):
        checkpoint.save({"weight": WEIGHT * step}, f"{step}.pt")
    checkpoint.save_async({"weight": WEIGHT * 3}, "3.pt")
    checkpoint.wait_written_back(60)
    assert keys(own, name) == [f"backup/run/{step}.pt" for step in (1, 2, 3)]
    there = Checkpoint(bucket_name=f"s3://{name}/backup/run", storage_client=client)
    assert torch.equal(there.load("3.pt")["weight"], WEIGHT * 3)
    with urllib.request.urlopen(f"{client.endpoint}/api/v1/jobs") as answer:
        jobs = [job for job in json.load(answer) if job["kind"] == "write-back"]
    assert len(jobs) == 3 and all(job["bytes"] == job["total_bytes"] for job in jobs)

    assert checkpoint.prune(keep=1) == ["1.pt", "2.pt"]
    checkpoint.wait_written_back(60)
    assert keys(own, name) == ["backup/run/3.pt"]
    with pytest.raises(KeyError, match="mine"), checkpoint.writer("3.pt") as writer:
        torch.save(WEIGHT, writer)
        raise KeyError("mine")
    checkpoint.wait_written_back(60)
    assert torch.equal(there.load("3.pt")["weight"], WEIGHT * 3)


def test_a_refused_write_is_reported_and_retried_with_the_next_checkpoint(
    start_cluster: Callable[..., Cluster], minio: Minio, door: tuple[str, type[Door]]
) -> None:
    name, own = minio.new_bucket()
    url, proxy = door
    client = client_before(start_cluster, {**minio.env, "AWS_ENDPOINT_URL": url})
    _, checkpoint = written_back(client, f"s3://{name}")
    proxy.refuses = True
    checkpoint.save("first", "1.pt")
    for _ in range(2):
        with pytest.raises(forebay.ForebayError, match=name):
            checkpoint.wait_written_back(60)
    assert checkpoint.load("1.pt") == "first" and keys(own, name) == []
    proxy.refuses = False
    with pytest.warns(RuntimeWarning, match="tried again"):
        checkpoint.save("second", "2.pt")
    checkpoint.wait_written_back(60)
    assert keys(own, name) == ["1.pt", "2.pt"]


def test_a_folder_of_a_distributed_checkpoint_is_whole_in_the_cloud_or_not_one(
    start_cluster: Callable[..., Cluster], minio: Minio
) -> None:
    import torch.distributed.checkpoint as dcp
    from forebay_torch.dcp import StorageReader, StorageWriter

    name, own = minio.new_bucket()
    client = client_before(start_cluster, minio.env, targets=2)
    native, checkpoint = written_back(client, f"s3://{name}")
    state = {"weight": WEIGHT, "step": torch.tensor(7)}
    folder = f"{native.uri}/run/step=1"
    dcp.save(state, storage_writer=StorageWriter(folder, storage_client=client))
    checkpoint.write_back(folder)
    found = own.list_objects_v2(Bucket=name)["Contents"]
    last = max(found, key=lambda o: o["LastModified"])
    assert len(found) >= 2 and last["Key"] == "run/step=1/.metadata"
    loaded = {"weight": torch.empty_like(WEIGHT), "step": torch.tensor(0)}
    reader = StorageReader(f"s3://{name}/run/step=1", storage_client=client)
    dcp.load(loaded, storage_reader=reader)
    assert torch.equal(loaded["weight"], WEIGHT) and loaded["step"] == 7
    with pytest.raises(ValueError, match="without write_back"):
        Checkpoint(bucket_name=native.uri, storage_client=client).write_back(folder)
