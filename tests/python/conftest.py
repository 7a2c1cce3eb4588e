"""Real clusters and a real S3 for the Python tests: nothing here is simulated.

Fixtures: `forebay_bin`, `start_cluster` (as many as a test wants), `cluster` (one per file),
`minio` (one per run). All processes end with the fixture that started them.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
START_DEADLINE_S = 30.0
STOP_DEADLINE_S = 20.0


def wait_until(condition: Callable[[], bool], what: str, deadline_s: float = 10.0) -> None:
    """Returns when `condition` holds; fails the test when it does not within the deadline."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"not within {deadline_s:g} s: {what}")
        time.sleep(0.02)


def free_ports(count: int) -> int:
    """First of `count` consecutive free ports, below those the kernel gives to clients."""
    for _ in range(200):
        first = random.randrange(12000, 32000 - count)
        with contextlib.ExitStack() as held:
            try:
                for port in range(first, first + count):
                    listener = held.enter_context(socket.socket())
                    listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    pytest.fail(f"found no {count} free ports in a row")


@dataclass
class Cluster:
    """A running `forebay dev`: separate processes on 127.0.0.1."""

    process: subprocess.Popen[bytes]
    folder: Path
    endpoint: str
    info: dict
    log: Path
    targets: list[dict] = field(init=False)

    def __post_init__(self) -> None:
        self.targets = self.info["targets"]

    def kill(self, node_id: str) -> None:
        """kill -9 of one node, as a crash would."""
        nodes = self.info["gateways"] + self.info["targets"]
        os.kill(next(n["pid"] for n in nodes if n["id"] == node_id), signal.SIGKILL)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                pytest.fail(f"the cluster did not stop on SIGTERM:\n{self.tail()}")

    def tail(self) -> str:
        """The ends of all logs, for a failure's message."""
        logs = [self.log, *sorted(self.folder.glob("*/log"))]
        return "\n".join(
            f"--- {log.parent.name}/{log.name}\n{log.read_text(errors='replace')[-1500:]}"
            for log in logs
            if log.is_file()
        )


@pytest.fixture(scope="session")
def forebay_bin() -> Path:
    """The binary under test."""
    path = Path(os.environ.get("FOREBAY_BIN", REPOSITORY / "build/release/forebay"))
    if not path.is_file():
        pytest.fail(f"{path} does not exist; run `make binary`, or set FOREBAY_BIN")
    return path.resolve()


@pytest.fixture(scope="module")
def start_cluster(
    forebay_bin: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Cluster]]:
    """`start_cluster(gateways=1, targets=3, options=[...], env={...})` -> a ready Cluster."""
    running: list[Cluster] = []

    def start(
        *,
        gateways: int = 1,
        targets: int = 3,
        options: list[str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Cluster:
        folder = tmp_path_factory.mktemp("cluster")
        log = folder / "log"
        port = free_ports(gateways + targets)
        command = [forebay_bin, "dev", "--dir", folder, "--port", str(port)]
        command += ["--gateways", str(gateways), "--targets", str(targets), *(options or [])]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=output, env={**os.environ, **(env or {})}
            )
        ready = folder / "dev.json"
        try:
            wait_until(
                lambda: ready.exists() or process.poll() is not None,
                "`forebay dev` ready",
                START_DEADLINE_S,
            )
            if process.poll() is not None:
                pytest.fail(f"`forebay dev` ended with {process.returncode}:\n{log.read_text()}")
        except BaseException:
            process.kill()
            process.wait()
            raise
        info = json.loads(ready.read_text())
        cluster = Cluster(process, folder, info["endpoint"], info, log)
        running.append(cluster)
        return cluster

    yield start
    for cluster in running:
        cluster.stop()


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., Cluster]) -> Cluster:
    """One gateway and three targets, shared by the tests of a file."""
    return start_cluster()


@dataclass
class Minio:
    """A running MinIO and the environment that points AWS clients, and targets, at it."""

    endpoint: str
    env: dict[str, str]


@pytest.fixture(scope="session")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio]:
    """S3 for real. Skips where there is no MinIO, fails there with FOREBAY_REQUIRE_MINIO set."""
    binary = os.environ.get("FOREBAY_MINIO") or shutil.which("minio")
    if not binary:
        if os.environ.get("FOREBAY_REQUIRE_MINIO"):
            pytest.fail("MinIO not found, and FOREBAY_REQUIRE_MINIO is set; see ci/minio.sh")
        pytest.skip("MinIO not found")
    folder = tmp_path_factory.mktemp("minio")
    endpoint = f"http://127.0.0.1:{free_ports(1)}"
    user, secret = "forebay-tests", "forebay-tests-secret"
    address = endpoint.removeprefix("http://")
    with (folder / "log").open("wb") as output:
        process = subprocess.Popen(
            [binary, "server", "--quiet", "--address", address, folder / "data"],
            stdout=output,
            stderr=output,
            env={
                **os.environ,
                "MINIO_ROOT_USER": user,
                "MINIO_ROOT_PASSWORD": secret,
                "MINIO_BROWSER": "off",
                "MINIO_PROMETHEUS_AUTH_TYPE": "public",
            },
        )
    try:

        def alive() -> bool:
            try:
                with urllib.request.urlopen(f"{endpoint}/minio/health/live", timeout=1):
                    return True
            except (urllib.error.URLError, OSError):
                return False

        wait_until(alive, f"MinIO answers; log in {folder}", START_DEADLINE_S)
        yield Minio(
            endpoint,
            {
                "AWS_ACCESS_KEY_ID": user,
                "AWS_SECRET_ACCESS_KEY": secret,
                "AWS_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": endpoint,
            },
        )
    finally:
        process.terminate()
        try:
            process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
