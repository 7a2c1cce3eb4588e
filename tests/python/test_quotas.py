"""Quotas of native buckets over several targets: filled to the limit over every API, and never beyond."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forebay
import pytest
from botocore.exceptions import ClientError
from conftest import Cluster
from forebay_command import Command
from forebay_s3 import client as s3_client

MIB = 1 << 20


def made(cluster: Cluster, folder: Path, name: str, *properties: str) -> Any:
    """A new native bucket with these properties."""
    bucket = forebay.Client(cluster.endpoint, timeout=20).bucket(name).create()
    Command.of(cluster, folder).ok("bucket", "set", f"ais://{name}", *properties)
    return bucket


def used(cluster: Cluster, folder: Path, name: str) -> tuple[int, int]:
    """Bytes and objects that count towards the quota, as `bucket info` shows them."""
    shown = json.loads(Command.of(cluster, folder).ok("bucket", "info", f"ais://{name}", "-o", "json"))
    quota = shown["warmth"]["quota_used"]
    return quota["bytes"], quota["objects"]


def refused(put: Callable[[], object]) -> forebay.ForebayError:
    """The refusal of a write that does not fit."""
    with pytest.raises(forebay.ForebayError) as raised:
        put()
    assert (raised.value.code, raised.value.status) == ("quota_exceeded", 507)
    return raised.value


def answer(method: str, url: str, body: bytes) -> tuple[int, str]:
    """Status and text of the answer to a request."""
    request = urllib.request.Request(url, data=body, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return reply.status, reply.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")


def at_owner(cluster: Cluster, method: str, path: str, body: bytes) -> tuple[int, str]:
    """As a client of AIStore: sends to the gateway, which names the owner, then to the owner."""

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    request = urllib.request.Request(cluster.endpoint + path, method=method, data=b"")
    try:
        urllib.request.build_opener(Stay).open(request, timeout=30)
    except urllib.error.HTTPError as redirect:
        assert redirect.code in (301, 307, 308)
        return answer(method, redirect.headers["Location"], body)
    pytest.fail("the gateway answered itself")


def test_writers_of_all_targets_stop_at_the_quota_and_a_deletion_makes_space(
    cluster: Cluster, tmp_path: Path
) -> None:
    size, limit = 300_000, 20 * MIB
    bucket = made(cluster, tmp_path, "full", "quota.bytes=20MiB")
    refusals: list[str] = []

    def write(writer: int) -> None:
        own = forebay.Client(cluster.endpoint, timeout=20).bucket("full")
        for n in range(20):
            try:
                own.object(f"{writer}/{n}").put(b"x" * size)
            except forebay.ForebayError as error:
                refusals.append(error.code)
                return

    writers = [threading.Thread(target=write, args=(n,)) for n in range(6)]
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    assert refusals == ["quota_exceeded"] * 6
    held, objects = used(cluster, tmp_path, "full")
    assert limit - size < held <= limit
    listed = [entry.name for entry in bucket.list_objects()]
    assert len(listed) == objects == held // size, "nothing of a refused write is there"
    shown = Command.of(cluster, tmp_path).ok("bucket", "info", "ais://full")
    assert "of 20MiB" in shown

    bucket.object(listed[0]).delete()
    bucket.object("after").put(b"y" * size)
    bucket.object("after").put(b"z" * size)
    error = refused(lambda: bucket.object("more").put(b"x" * size))
    for words in ("full", "20MiB", "forebay bucket set"):
        assert words in str(error)


def test_an_overwrite_counts_the_difference_and_objects_are_counted(
    cluster: Cluster, tmp_path: Path
) -> None:
    bucket = made(cluster, tmp_path, "overwrite", "quota.bytes=4MiB", "quota.objects=2")
    a = bucket.object("a")
    a.put(bytes(3 * MIB))
    for fill in (b"1", b"2", b"3"):
        a.put(fill * (3 * MIB + MIB // 2))
    refused(lambda: a.put(bytes(5 * MIB)))
    assert a.get().read_all() == b"3" * (3 * MIB + MIB // 2), "the old object stays"
    a.put(b"0123456789")
    bucket.object("b").put(b"0123456789")
    assert "may hold 2 objects" in str(refused(lambda: bucket.object("c").put(b"x")))
    assert used(cluster, tmp_path, "overwrite") == (20, 2)
    bucket.object("b").delete()
    bucket.object("c").put(b"x")


@pytest.mark.parametrize(("name", "protection"), [("copied", "copies=3"), ("coded", "ec=2+1")])
def test_an_object_counts_once_however_many_copies_and_slices_it_has(
    start_cluster: Callable[..., Cluster], tmp_path: Path, name: str, protection: str
) -> None:
    cluster = start_cluster(targets=4)
    bucket = made(cluster, tmp_path, name, "quota.bytes=6MiB", protection)
    for n in range(10):
        bucket.object(f"small/{n}").put(bytes(1000))
    for n in range(5):
        bucket.object(f"large/{n}").put(bytes(MIB))
    refused(lambda: bucket.object("over").put(bytes(2 * MIB)))
    held, objects = used(cluster, tmp_path, name)
    assert objects == 15
    assert abs(held - 5 * MIB - 10_000) < 2_000


def test_every_api_refuses_with_its_own_error_and_our_command_does_not_try_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    bucket = made(cluster, tmp_path, "apis", "quota.bytes=1MiB")
    body = bytes(2 * MIB)
    status, text = at_owner(cluster, "PUT", "/v1/objects/apis/v1", body)
    assert status == 507
    for words in ("apis", "1MiB", "adds 2MiB"):
        assert words in text
    s3 = s3_client(f"{cluster.endpoint}/s3")
    with pytest.raises(ClientError) as raised:
        s3.put_object(Bucket="apis", Key="s3", Body=body)
    assert raised.value.response["Error"]["Code"] == "QuotaExceeded"
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403

    file = tmp_path / "file"
    file.write_bytes(body)
    command = Command.of(cluster, tmp_path)
    began = time.monotonic()
    done = command("put", str(file), "ais://apis/cli")
    assert done.code == 1
    assert "quota.bytes" in done.err
    assert time.monotonic() - began < 10
    assert list(bucket.list_objects()) == []

    command.ok("bucket", "set", "ais://apis", "quota.bytes=none")
    bucket.object("now").put(body)


def test_an_upload_in_parts_is_refused_at_the_part_that_does_not_fit(
    cluster: Cluster, tmp_path: Path
) -> None:
    made(cluster, tmp_path, "parts", "quota.bytes=12MiB")
    s3 = s3_client(f"{cluster.endpoint}/s3")
    upload = {"Bucket": "parts", "Key": "o"}
    upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
    parts = []
    for number in (1, 2):
        part = s3.upload_part(**upload, PartNumber=number, Body=bytes(5 * MIB))
        parts.append({"PartNumber": number, "ETag": part["ETag"]})
    with pytest.raises(ClientError) as raised:
        s3.upload_part(**upload, PartNumber=3, Body=bytes(5 * MIB))
    assert raised.value.response["Error"]["Code"] == "QuotaExceeded"
    s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    assert s3.head_object(Bucket="parts", Key="o")["ContentLength"] == 10 * MIB
    assert used(cluster, tmp_path, "parts") == (10 * MIB, 1)


def test_older_versions_count_and_can_always_be_deleted(cluster: Cluster, tmp_path: Path) -> None:
    made(cluster, tmp_path, "versions", "quota.objects=2")
    s3 = s3_client(f"{cluster.endpoint}/s3")
    s3.put_bucket_versioning(Bucket="versions", VersioningConfiguration={"Status": "Enabled"})
    first = s3.put_object(Bucket="versions", Key="o", Body=b"1")["VersionId"]
    s3.put_object(Bucket="versions", Key="o", Body=b"2")
    with pytest.raises(ClientError) as raised:
        s3.put_object(Bucket="versions", Key="o", Body=b"3")
    assert raised.value.response["Error"]["Code"] == "QuotaExceeded"
    s3.delete_object(Bucket="versions", Key="o", VersionId=first)
    s3.put_object(Bucket="versions", Key="o", Body=b"3")
    s3.delete_object(Bucket="versions", Key="o")


def test_a_quota_is_for_native_buckets_and_wrong_values_are_named(
    cluster: Cluster, tmp_path: Path
) -> None:
    made(cluster, tmp_path, "values", "quota.objects=5")
    command = Command.of(cluster, tmp_path)
    wrong = command("bucket", "set", "ais://values", "quota.bytes=soon")
    assert (wrong.code, "quota.bytes" in wrong.err) == (2, True)
    near = command("bucket", "set", "ais://values", "quota.object=5")
    assert (near.code, "objects" in near.err) == (2, True)
    assert "quota.objects" in command.ok("bucket", "info", "ais://values")


def test_a_quota_holds_when_another_gateway_leads(
    start_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = start_cluster(gateways=3, targets=2)
    made(cluster, tmp_path, "led", "quota.bytes=4MiB")
    client = forebay.Client(
        ",".join(gateway["url"] for gateway in cluster.info["gateways"]), timeout=30
    )
    bucket = client.bucket("led")
    bucket.object("a").put(bytes(3 * MIB))
    leading = json.loads(Command.of(cluster, tmp_path).ok("cluster", "info", "-o", "json"))
    primary = leading.get("primary") or leading.get("leader")
    ends = [g for g in cluster.info["gateways"] if g["id"] == primary] or cluster.info["gateways"][:1]
    os.kill(ends[0]["pid"], signal.SIGKILL)
    refused(lambda: bucket.object("b").put(bytes(2 * MIB)))
    bucket.object("c").put(bytes(MIB // 2))
