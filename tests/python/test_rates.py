"""Rates of requests and bytes of buckets and users, over two targets: every API, batches, fair parts."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import forebay
import pytest
from aistore.sdk import Client as AisClient
from aistore.sdk.errors import AISError
from aistore.sdk.retry_config import RetryConfig
from botocore.config import Config
from botocore.exceptions import ClientError
from conftest import Cluster
from forebay_cluster import metrics_of
from forebay_command import Command
from forebay_s3 import ACCESS, REGION, SECRET
from urllib3.util.retry import Retry

KIB = 1 << 10
# A target has half of a limit.
TARGETS = 2


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., Cluster]) -> Cluster:
    return start_cluster(targets=TARGETS)


@dataclass
class Reply:
    status: int
    retry_after: str | None
    text: str


def made(cluster: Cluster, folder: Path, name: str, *properties: str) -> Any:
    """A new native bucket with these properties, and an object `o` of 1,000 bytes."""
    bucket = forebay.Client(cluster.endpoint, timeout=30).bucket(name).create()
    bucket.object("o").put(b"x" * 1000)
    if properties:
        Command.of(cluster, folder).ok("bucket", "set", f"ais://{name}", *properties)
    return bucket


def get(cluster: Cluster, path: str) -> Reply:
    """Sends one GET, as a client that knows neither Forebay nor AIStore and never tries again."""
    try:
        with urllib.request.urlopen(cluster.endpoint + path, timeout=30) as reply:
            return Reply(reply.status, None, reply.read().decode())
    except urllib.error.HTTPError as error:
        return Reply(error.code, error.headers["Retry-After"], error.read().decode())


def at_once(count: int, call: Callable[[], Any]) -> list[Any]:
    """The results of `count` calls at the same time."""
    with ThreadPoolExecutor(count) as threads:
        return [future.result() for future in [threads.submit(call) for _ in range(count)]]


def s3_client(cluster: Cluster, user: int = 1, retries: dict[str, Any] | None = None) -> Any:
    """boto3 with the keys of the first or the second user of a trial cluster."""
    suffix = "" if user == 1 else str(user)
    return boto3.client(
        "s3",
        endpoint_url=f"{cluster.endpoint}/s3",
        region_name=REGION,
        aws_access_key_id=ACCESS + suffix,
        aws_secret_access_key=SECRET + suffix,
        config=Config(retries=retries, max_pool_connections=32),
    )


def refusals_of_s3(cluster: Cluster, bucket: str, count: int, user: int = 1) -> list[Any]:
    """The refusals of `count` GETs at once by boto3 without retries."""
    s3 = s3_client(cluster, user, {"total_max_attempts": 1})

    def read() -> Any:
        try:
            s3.get_object(Bucket=bucket, Key="o")["Body"].read()
        except ClientError as error:
            return error.response
        return None

    return [refusal for refusal in at_once(count, read) if refusal]


def set_by_aistore(cluster: Cluster, bucket: str, rate_limit: dict[str, Any]) -> str:
    """Sets AIStore's property; returns the names of properties without an effect."""
    message = {"action": "set-bprops", "value": {"rate_limit": rate_limit}}
    request = urllib.request.Request(
        f"{cluster.endpoint}/v1/buckets/{bucket}",
        method="PATCH",
        data=json.dumps(message).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as reply:
        return str(reply.headers["forebay-no-effect"] or "")


def test_rates_are_set_shown_and_removed_and_wrong_values_are_named(
    cluster: Cluster, tmp_path: Path
) -> None:
    made(cluster, tmp_path, "values")
    command = Command.of(cluster, tmp_path)
    rates = ("rate.requests_per_second=500", "rate.bytes_per_second=1GiB")
    shown = command.ok("bucket", "set", "ais://values", *rates)
    for words in ("rate.requests_per_second", "500", "rate.bytes_per_second", "1GiB"):
        assert words in shown
    as_json = json.loads(command.ok("bucket", "info", "ais://values", "-o", "json"))
    assert as_json["rate"] == {"requests_per_second": 500, "bytes_per_second": 1 << 30}
    command.ok("bucket", "set", "ais://values", "rate.requests_per_second=none")
    shown = command.ok("bucket", "info", "ais://values")
    assert "rate.requests_per_second" not in shown
    assert "rate.bytes_per_second" in shown
    for change, words in (("rate.bytes_per_second=1", "1024"), ("rate.requests=1", "requests_per")):
        wrong = command("bucket", "set", "ais://values", change)
        assert wrong.code == 2
        assert words in wrong.err


def test_a_request_over_the_rate_waits_and_then_gets_429_with_retry_after(
    cluster: Cluster, tmp_path: Path
) -> None:
    made(cluster, tmp_path, "requests", "rate.requests_per_second=16")
    began = time.monotonic()
    replies = at_once(40, lambda: get(cluster, "/v1/objects/requests/o"))
    seconds = time.monotonic() - began
    refused = [reply for reply in replies if reply.status == 429]
    served = sum(reply.status == 200 for reply in replies)
    assert served + len(refused) == 40
    # Eight at once, and eight in each second that a request may wait.
    assert 16 <= served <= 8 + 8 * (seconds + 0.5)
    assert 1.0 < seconds < 5.0
    for reply in refused:
        assert reply.retry_after is not None
        assert int(reply.retry_after) >= 1
        assert "requests" in reply.text
    counted = Counter[str]()
    for target in cluster.info["targets"]:
        for name, labels, value in metrics_of(target["url"]):
            if labels.get("reason") == "bucket_requests":
                counted[name] += int(value)
    assert counted["forebay_rate_delayed_total"] >= 8
    assert counted["forebay_rate_refused_total"] >= len(refused)

    bucket = forebay.Client(cluster.endpoint, timeout=30).bucket("requests")
    read = at_once(24, lambda: bucket.object("o").get().read_all())
    assert all(bytes(body) == b"x" * 1000 for body in read), "our client waits and tries again"


def test_s3_clients_get_slow_down_and_boto3_gets_through(cluster: Cluster, tmp_path: Path) -> None:
    made(cluster, tmp_path, "over-s3", "rate.requests_per_second=8")
    refusals = refusals_of_s3(cluster, "over-s3", 24)
    assert refusals
    for refusal in refusals:
        meta = refusal["ResponseMetadata"]
        assert (refusal["Error"]["Code"], meta["HTTPStatusCode"]) == ("SlowDown", 503)
        assert int(meta["HTTPHeaders"]["retry-after"]) >= 1
    s3 = s3_client(cluster)
    assert s3.head_object(Bucket="over-s3", Key="o")["ContentLength"] == 1000


def test_the_frontend_limit_of_aistore_has_the_same_effect(
    cluster: Cluster, tmp_path: Path
) -> None:
    made(cluster, tmp_path, "frontend")
    frontend = {"enabled": True, "interval": "10s", "max_tokens": 80, "burst_size": 4}
    ignored = set_by_aistore(cluster, "frontend", {"frontend": frontend})
    assert "frontend" not in ignored
    plain = RetryConfig.default()
    once = RetryConfig(http_retry=Retry(total=0), network_retry=plain.network_retry)

    def read(retries: RetryConfig) -> int:
        client = AisClient(cluster.endpoint, timeout=20, retry_config=retries)
        try:
            body = client.bucket("frontend").object("o").get_reader().read_all()
        except AISError as error:
            return int(error.status_code)
        assert body == b"x" * 1000
        return 200

    # A target has four requests a second, and two at once.
    assert set(at_once(16, lambda: read(once))) == {200, 429}
    assert read(plain) == 200, "as it comes it waits and tries again"
    set_by_aistore(cluster, "frontend", {"frontend": {"enabled": False}})
    replies = at_once(20, lambda: get(cluster, "/v1/objects/frontend/o"))
    assert {reply.status for reply in replies} == {200}
    backend = {"enabled": True, "max_tokens": 5}
    assert "rate_limit.backend" in set_by_aistore(cluster, "frontend", {"backend": backend})


def test_bytes_of_writes_and_reads_pass_at_the_rate(cluster: Cluster, tmp_path: Path) -> None:
    bucket = made(cluster, tmp_path, "bytes", "rate.bytes_per_second=1MiB")
    body = b"0123456789abcdef" * (40 * KIB)
    times = []
    for call in (
        lambda: bucket.object("large").put(body),
        lambda: bucket.object("large").get().read_all(),
    ):
        began = time.monotonic()
        call()
        times.append(time.monotonic() - began)
    # 640 KiB by 512 KiB a second, of which 128 KiB may pass at once.
    assert all(0.9 < seconds < 4 for seconds in times), times
    assert bytes(bucket.object("large").get().read_all()) == body


def test_each_entry_of_a_batch_counts_and_later_requests_wait_for_them(
    cluster: Cluster, tmp_path: Path
) -> None:
    bucket = made(cluster, tmp_path, "batches")
    names = [f"b{n}" for n in range(60)]
    bucket.put_many([(name, b"y" * 100) for name in names])
    rate = "rate.requests_per_second=10"
    Command.of(cluster, tmp_path).ok("bucket", "set", "ais://batches", rate)
    items = forebay.Client(cluster.endpoint, timeout=30).get_many([(bucket, name) for name in names])
    assert len(list(items)) == 60, "a batch larger than the burst passes"
    reply = get(cluster, "/v1/objects/batches/o")
    assert reply.status == 429
    assert int(reply.retry_after or 0) >= 2


def test_users_that_compete_for_a_bucket_get_equal_parts(cluster: Cluster, tmp_path: Path) -> None:
    bucket = made(cluster, tmp_path, "shared")
    bucket.object("o").put(bytes(32 * KIB))
    limit = "rate.bytes_per_second=4MiB"
    Command.of(cluster, tmp_path).ok("bucket", "set", "ais://shared", limit)
    got = {1: 0, 2: 0}
    lock, end = threading.Lock(), time.monotonic() + 2.5

    def read(user: int) -> None:
        s3 = s3_client(cluster, user)
        while time.monotonic() < end:
            body = s3.get_object(Bucket="shared", Key="o")["Body"].read()
            with lock:
                got[user] += len(body)

    users = [1] * 3 + [2] * 9
    readers = [threading.Thread(target=read, args=(user,)) for user in users]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert 0.7 < got[1] / got[2] < 1.4, got


def test_a_scanner_with_a_limit_leaves_the_readers_of_another_bucket_alone(
    cluster: Cluster, tmp_path: Path
) -> None:
    scanned = made(cluster, tmp_path, "scanned")
    scanned.object("o").put(bytes(256 * KIB))
    read = made(cluster, tmp_path, "read")
    limit = "rate.bytes_per_second=2MiB"
    Command.of(cluster, tmp_path).ok("bucket", "set", "ais://scanned", limit)
    passed, stop = [0], threading.Event()

    def scan() -> None:
        own = forebay.Client(cluster.endpoint, timeout=30).bucket("scanned")
        while not stop.is_set():
            passed[0] += len(own.object("o").get().read_all())

    scanners = [threading.Thread(target=scan) for _ in range(4)]
    began = time.monotonic()
    for scanner in scanners:
        scanner.start()
    waits = []
    while time.monotonic() < began + 1.5:
        start = time.monotonic()
        read.object("o").get().read_all()
        waits.append(time.monotonic() - start)
    stop.set()
    for scanner in scanners:
        scanner.join()
    seconds = time.monotonic() - began
    assert passed[0] <= (seconds + 0.5) * 1024 * KIB + 4 * 256 * KIB
    assert len(waits) > 50
    assert sorted(waits)[len(waits) // 2] < 0.1


def test_a_user_has_a_limit_for_all_buckets_together(
    start_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[limits]\nuser_requests_per_second = 6\n")
    cluster = start_cluster(targets=1, options=["--config", str(config)])
    made(cluster, tmp_path, "one")
    made(cluster, tmp_path, "two")
    refusals = refusals_of_s3(cluster, "one", 24)
    assert refusals
    assert "user" in refusals[0]["Error"]["Message"]
    assert not refusals_of_s3(cluster, "two", 4, user=2), "another user has a limit of its own"
    assert get(cluster, "/v1/objects/one/o").status == 200, "requests without a user have none"
