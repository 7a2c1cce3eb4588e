"""The alerts of live clusters with faults, as a real Prometheus server evaluates them.

One test, of the alerts that matter most, runs always; `make test-long` runs the others.
"""

from __future__ import annotations

import ast
import itertools
import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests
from forebay_clouds import Minio, stop
from forebay_cluster import Cluster, binary, wait_until
from forebay_faults import (
    Link,
    crash_and_start,
    damage,
    fill,
    mount_small_file_system,
    shifted_clock,
    unplug,
)
from forebay_prometheus import SECONDS_PER_MINUTE, Prometheus, shortened_rules
from forebay_promtool import alerts
from forebay_skips import long

MIB = 1 << 20


# Creates a cluster, and a Prometheus that watches it.
Start = Callable[..., tuple[Cluster, Prometheus]]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Ends the processes and mounts of a test in reverse order."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the cluster."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    return folder


@pytest.fixture
def start(folder: Path, stack: ExitStack) -> Start:
    """`start(gateways=1, targets=1, seconds_per_minute=1, ...)` -> the cluster and its Prometheus."""

    def start(
        gateways: int = 1,
        targets: int = 1,
        seconds_per_minute: float = SECONDS_PER_MINUTE,
        settings: str = "",
        options: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
    ) -> tuple[Cluster, Prometheus]:
        config = folder.parent / "settings.toml"
        config.write_text(settings)
        cluster = Cluster.start(
            folder,
            gateways=gateways,
            targets=targets,
            options=["--config", str(config), *options],
            env=env,
        )
        stack.callback(cluster.fail_on_panics)
        stack.callback(stop, cluster.process)
        prometheus = Prometheus(folder.parent, cluster, seconds_per_minute)
        stack.callback(stop, prometheus.process)
        return cluster, prometheus

    return start


def status_of(url: str, method: str = "GET", body: bytes | None = None) -> int:
    headers = {"Content-Type": "application/json"}
    return requests.request(method, url, data=body, headers=headers, timeout=30).status_code


def create_bucket(cluster: Cluster, name: str) -> None:
    create = json.dumps({"action": "create-bck"}).encode()
    assert status_of(f"{cluster.endpoint}/v1/buckets/{name}?provider=ais", "POST", create) == 200


def run_command(cluster: Cluster, *arguments: str) -> None:
    command = [str(binary()), *arguments, "--endpoint", cluster.endpoint]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def slow_link(minio: Minio) -> tuple[Link, dict[str, str]]:
    """A link to MinIO, and the environment of a cluster that reads through it."""
    host, port = minio.endpoint.removeprefix("http://").split(":")
    link = Link((host, int(port)))
    env = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{link.port}", "AWS_MAX_ATTEMPTS": "1"}
    return link, {**minio.env, **env}


def test_a_healthy_cluster_raises_no_alert_and_lost_data_disks_targets_and_majorities_do(
    start: Start, folder: Path
) -> None:
    cluster, prometheus = start(gateways=3, targets=2)
    objects = f"{cluster.endpoint}/v1/objects"
    create_bucket(cluster, "own")
    payloads = {f"o{n}": f"payload {n} ".encode() * 2000 for n in range(30)}
    for name, payload in payloads.items():
        assert status_of(f"{objects}/own/{name}?provider=ais", "PUT", payload) == 200
        assert status_of(f"{objects}/own/{name}?provider=ais") == 200
    for _ in range(8):
        assert prometheus.firing() == set()
        status_of(f"{objects}/own/o0?provider=ais")
        time.sleep(0.2)

    # Damaged objects that have no other copy: first one, then many.
    for number, (name, payload) in enumerate(payloads.items()):
        assert damage(folder, payload) == 1
        assert status_of(f"{objects}/own/{name}?provider=ais") >= 500
        if number == 0:
            prometheus.wait_for("ForebayDataLost")
            assert "ForebayDamageRising" not in prometheus.firing()
    prometheus.wait_for("ForebayDamageRising")

    first, second = cluster.targets
    unplug(Path(first["disks"][0]))
    cluster.kill(second["id"])
    prometheus.wait_for("ForebayDiskAway", "ForebayTargetDown", "ForebayTargetDead")
    assert not prometheus.firing() & {"ForebayGatewayDown", "ForebayNoMajority", "ForebayNoLeader"}

    # One of three gateways has no majority.
    for gateway in cluster.info["gateways"][1:]:
        cluster.kill(gateway["id"])
    prometheus.wait_for("ForebayNoMajority", "ForebayNoLeader")


@long
def test_alerts_fire_when_one_gateway_dies_and_when_all_do(start: Start) -> None:
    cluster, prometheus = start(gateways=3)
    first, *others = (gateway["id"] for gateway in cluster.info["gateways"])
    cluster.kill(first)
    prometheus.wait_for("ForebayGatewayDown", "ForebayGatewayDead", "ForebayVoterMissing")
    assert not prometheus.firing() & {"ForebayNoMajority", "ForebayNoLeader", "ForebayNoMetrics"}
    for other in others:
        cluster.kill(other)
    prometheus.wait_for("ForebayNoMetrics")


@long
def test_an_alert_fires_for_a_target_whose_clock_is_a_minute_ahead(
    start: Start, tmp_path: Path, stack: ExitStack
) -> None:
    cluster, prometheus = start(targets=2)
    crash_and_start(cluster, cluster.targets[0]["id"], stack)
    assert prometheus.value("forebay_cluster_clock_offset_seconds > 5") is None
    crash_and_start(cluster, cluster.targets[1]["id"], stack, before=shifted_clock(tmp_path, 60))
    prometheus.wait_for("ForebayClockWrong")


@long
def test_an_alert_fires_for_a_drain_that_the_other_targets_have_no_space_for(start: Start) -> None:
    # Four hours become ten seconds.
    cluster, prometheus = start(targets=2, seconds_per_minute=1 / 24, options=("--size", "48MiB"))
    create_bucket(cluster, "own")
    url = f"{cluster.endpoint}/v1/objects/own"
    statuses = [status_of(f"{url}/o{n}?provider=ais", "PUT", bytes(MIB)) for n in range(72)]
    assert statuses == [200] * len(statuses)
    run_command(cluster, "node", "drain", cluster.targets[0]["id"])
    prometheus.wait_for("ForebayDrainSlow")


@long
def test_alerts_fire_for_a_budget_and_a_file_system_that_are_full(
    start: Start, folder: Path, stack: ExitStack
) -> None:
    disk = folder / "target01/disk1"
    mount_small_file_system(disk, "400m", stack)
    cluster, prometheus = start(options=("--size", "32MiB"))
    create_bucket(cluster, "own")
    assert "ForebayFileSystemFull" not in prometheus.firing()

    # Native objects stay, so eviction finds nothing.
    url = f"{cluster.endpoint}/v1/objects/own"
    for n in itertools.count():
        if (status := status_of(f"{url}/o{n}?provider=ais", "PUT", bytes(MIB // 4))) != 200:
            break
    assert (status, n > 90) == (507, True)

    fill(disk, free_bytes=200 * MIB)
    prometheus.wait_for("ForebayFileSystemFull")
    assert "ForebayFileSystemNearlyFull" not in prometheus.firing()
    fill(disk, free_bytes=10 * MIB)
    prometheus.wait_for("ForebayFileSystemNearlyFull", "ForebayDiskFull")


@long
def test_an_alert_fires_when_pinned_copies_leave_no_space_for_others(
    minio: Minio, start: Start
) -> None:
    pinned, own = minio.new_bucket()
    # A quarter of an hour becomes 5 s.
    cluster, prometheus = start(seconds_per_minute=1 / 3, options=("--size", "32MiB"), env=minio.env)

    def read(number: int) -> int:
        own.put_object(Bucket=pinned, Key=f"o{number}", Body=bytes(MIB // 4))
        return status_of(f"{cluster.endpoint}/v1/objects/{pinned}/o{number}?provider=aws")

    assert read(0) == 200
    run_command(cluster, "bucket", "set", f"s3://{pinned}", "pin=true")
    assert {read(number) for number in range(1, 140)} == {200}
    prometheus.wait_for("ForebayDiskFull")


@long
def test_alerts_fire_when_a_cloud_is_slow_and_when_it_is_away(minio: Minio, start: Start) -> None:
    link, env = slow_link(minio)
    bucket, own = minio.new_bucket()
    cluster, prometheus = start(env=env)
    numbers = itertools.count()

    def read_cold() -> int:
        name = f"o{next(numbers)}"
        own.put_object(Bucket=bucket, Key=name, Body=b"cold")
        return status_of(f"{cluster.endpoint}/v1/objects/{bucket}/{name}?provider=aws")

    with ThreadPoolExecutor(8) as pool:

        def read_many() -> set[int]:
            return set(pool.map(lambda _: read_cold(), range(8)))

        assert read_many() == {200}
        assert not prometheus.firing()
        link.delay_s = 1.5
        prometheus.wait_for("ForebayFirstByteSlow", meanwhile=read_many)
        assert not prometheus.firing() & {"ForebayRequestsFail", "ForebayBackendFails"}
        link.cut()
        prometheus.wait_for("ForebayRequestsFail", "ForebayBackendFails", meanwhile=read_many)


@long
def test_an_alert_fires_when_readers_of_cached_objects_change_to_new_ones(
    minio: Minio, start: Start
) -> None:
    bucket, own = minio.new_bucket()
    # The hour of the rule becomes 30 s.
    cluster, prometheus = start(seconds_per_minute=0.5, env=minio.env)
    names = itertools.count()

    def read(name: str) -> None:
        assert status_of(f"{cluster.endpoint}/v1/objects/{bucket}/{name}?provider=aws") == 200

    def read_new() -> None:
        for name in (f"o{next(names)}" for _ in range(2)):
            own.put_object(Bucket=bucket, Key=name, Body=bytes(MIB))
            read(name)

    read_new()
    begin = time.monotonic()
    while time.monotonic() < begin + 4:
        read("o0")
    hits_an_hour_ago = 'forebay_get_bytes_total{job="forebay-target",result="hit"} offset 30s'
    hits = prometheus.value(hits_an_hour_ago.removesuffix(" offset 30s"))
    assert hits
    wait_until(lambda: (prometheus.value(hits_an_hour_ago) or 0) >= hits, "an hour passed", 60.0)
    assert "ForebayHitRatioCollapsed" not in prometheus.firing()
    prometheus.wait_for("ForebayHitRatioCollapsed", meanwhile=read_new)


@long
def test_an_alert_fires_when_slow_readers_take_all_places_of_batches(start: Start) -> None:
    cluster, prometheus = start(settings="[limits]\nbatches = 1\n")
    create_bucket(cluster, "own")
    # More than the buffers of two sockets hold.
    names = [f"o{n}" for n in range(60)]
    for name in names:
        url = f"{cluster.endpoint}/v1/objects/own/{name}?provider=ais"
        assert status_of(url, "PUT", bytes(MIB)) == 200
    url = f"{cluster.endpoint}/v1/ml/moss/own?provider=ais"
    body = {"in": [{"objname": name} for name in names], "strm": True, "coer": True}
    small = {**body, "in": body["in"][:1]}  # type: ignore[index]
    over = threading.Event()

    def read_slowly() -> None:
        while not over.is_set():
            with requests.get(url, json=body, stream=True, timeout=30) as answer:
                for _ in answer.iter_content(MIB // 4):
                    if over.wait(0.1):
                        return

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read_slowly)
        try:
            wait_until(lambda: cluster.count("forebay_batches") == 1, "a batch is sent")
            prometheus.wait_for(
                "ForebayBatchQueueSlow", meanwhile=lambda: requests.get(url, json=small, timeout=30)
            )
        finally:
            over.set()
        reader.result(30)


@long
def test_alerts_fire_for_certificates_that_expire(start: Start, folder: Path) -> None:
    if not shutil.which("openssl"):
        pytest.skip("openssl not found")
    # An hour becomes 5 s.
    _, prometheus = start(seconds_per_minute=1 / 12, options=("--tls",))
    tls = folder / "tls"
    (tls / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1,DNS:target01\n")

    def replace_certificate(days: int) -> None:
        def openssl(arguments: str, text: bytes = b"") -> bytes:
            command = ["openssl", *arguments.split()]
            return subprocess.run(command, cwd=tls, check=True, capture_output=True, input=text).stdout

        request = openssl("req -new -key target01-key.pem -subj /CN=target01")
        openssl(
            "x509 -req -CA ca.pem -CAkey ca-key.pem -CAserial serial -CAcreateserial -extfile names"
            f" -days {days} -out new.pem",
            request,
        )
        (tls / "new.pem").replace(tls / "target01.pem")

    expiring = {"ForebayCertificateExpires", "ForebayCertificateExpiresSoon"}
    assert not prometheus.firing() & expiring
    replace_certificate(days=10)
    prometheus.wait_for("ForebayCertificateExpires")
    assert "ForebayCertificateExpiresSoon" not in prometheus.firing()
    replace_certificate(days=1)
    prometheus.wait_for("ForebayCertificateExpiresSoon")


@long
def test_an_alert_fires_when_the_disk_of_the_audit_log_is_full(
    start: Start, folder: Path, stack: ExitStack
) -> None:
    disk = folder.parent / "audit"
    mount_small_file_system(disk, "1m", stack)
    cluster, prometheus = start(settings=f'[audit]\nfile = "{disk}/audit.jsonl"\n')
    create_bucket(cluster, "first")
    wait_until(lambda: "ais://first" in (disk / "audit.jsonl").read_text(), "the bucket is recorded")
    assert "ForebayAuditRecordsLost" not in prometheus.firing()
    fill(disk, free_bytes=0)
    buckets = (f"b{n}" for n in itertools.count())
    prometheus.wait_for(
        "ForebayAuditRecordsLost", meanwhile=lambda: create_bucket(cluster, next(buckets))
    )


@long
def test_an_alert_fires_when_a_target_may_open_too_few_files_for_its_clients(
    start: Start, stack: ExitStack
) -> None:
    cluster, prometheus = start()
    assert "ForebayOpenFilesHigh" not in prometheus.firing()
    crash_and_start(cluster, cluster.targets[0]["id"], stack, before="ulimit -n 48")
    host, port = cluster.targets[0]["url"].removeprefix("http://").split(":")

    def connect() -> None:
        # The target ends the oldest connections above its limit.
        stack.enter_context(socket.create_connection((host, int(port))))

    for _ in range(30):
        connect()
    prometheus.wait_for("ForebayOpenFilesHigh", meanwhile=connect)


@long
def test_an_alert_fires_for_a_target_that_crashes_again_and_again(
    start: Start, stack: ExitStack
) -> None:
    cluster, prometheus = start()
    metric = 'process_start_time_seconds{job="forebay-target"}'
    for _ in range(4):
        started = prometheus.value(metric)
        assert started is not None
        assert "ForebayRestarts" not in prometheus.firing()
        # The metric has whole seconds.
        wait_until(lambda at=started: time.time() > at + 2, "another second")  # type: ignore[misc]
        crash_and_start(cluster, cluster.targets[0]["id"], stack)
        later = f"{metric} > {started}"
        wait_until(lambda expr=later: prometheus.value(expr) is not None, "a scrape")  # type: ignore[misc]
    prometheus.wait_for("ForebayRestarts")


def test_rules_get_shorter_times_and_keep_everything_else() -> None:
    shortened = [rule for group in shortened_rules()["groups"] for rule in group["rules"]]
    named = {rule["alert"]: rule for rule in shortened}
    assert list(named) == [rule["alert"] for rule in alerts()]
    assert named["ForebayDrainSlow"]["for"] == "240000ms"
    expr = named["ForebayHitRatioCollapsed"]["expr"]
    assert "[360000ms] offset 60000ms" in expr and "[30000ms]" in expr
    for rule in alerts():
        if "[" not in rule["expr"]:
            assert named[rule["alert"]]["expr"] == rule["expr"]


def test_every_alert_fires_in_a_test_of_this_file() -> None:
    calls = [node for node in ast.walk(ast.parse(Path(__file__).read_text())) if isinstance(node, ast.Call)]
    waits = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "wait_for"]
    fired = {ast.literal_eval(argument) for call in waits for argument in call.args}
    assert fired == {rule["alert"] for rule in alerts()}
