"""A real cluster for tests: `forebay dev` with separate processes, one for a whole test run.

A conftest.py takes it in by `from forebay_fixture import bucket, client, cluster`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
READY_S = 30.0
STOP_S = 20.0
_SAMPLE = re.compile(r"(?m)^([a-z_]+)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'([a-z_]+)="([^"]*)"')


def binary() -> Path:
    """The program under test: FOREBAY_BIN, else the release build."""
    path = Path(os.environ.get("FOREBAY_BIN") or ROOT / "build/release/forebay")
    if not path.is_file():
        pytest.fail(f"{path} is missing; build it by `make binary` or set FOREBAY_BIN")
    return path


def free_ports(count: int) -> int:
    """The first of ``count`` free ports in a row, below the range of outgoing connections."""
    start = 17000 + os.getpid() % 7000
    for first in [*range(start, 32000 - count, count), *range(17000, start, count)]:
        if all(_is_free(port) for port in range(first, first + count)):
            return first
    raise RuntimeError("no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def metrics_of(url: str) -> list[tuple[str, dict[str, str], float]]:
    """Every sample of a node's /metrics: name, labels, value."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return [
        (name, dict(_LABEL.findall(labels or "")), float(value))
        for name, labels, value in _SAMPLE.findall(text)
    ]


@dataclass
class Cluster:
    """A running cluster: one gateway, three targets."""

    process: subprocess.Popen[bytes]
    directory: Path
    folder_root: Path
    info: dict[str, Any]

    @property
    def endpoint(self) -> str:
        return str(self.info["endpoint"])

    def count(self, name: str, **labels: str) -> float:
        """The sum of a counter over all targets, of those samples that have these labels."""
        return sum(
            value
            for node in self.info["targets"]
            for sample, has, value in metrics_of(node["url"])
            if sample == name and labels.items() <= has.items()
        )


def start(directory: Path, *extra: str, env: dict[str, str] | None = None) -> Cluster:
    """Starts a cluster in ``directory`` and waits until it is ready."""
    folder_root = directory / "folders"
    folder_root.mkdir(parents=True)
    port = free_ports(4)
    log = directory / "dev.log"
    command = [
        str(binary()), "dev", "--dir", str(directory / "dev"), "--gateways", "1",
        "--targets", "3", "--port", str(port), "--folder-root", str(folder_root), *extra,
    ]  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env={**os.environ, **(env or {})}
        )
    ready = directory / "dev/dev.json"
    deadline = time.monotonic() + READY_S
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise RuntimeError(f"{command} is not ready:\n{log.read_text()[-4000:]}")
        time.sleep(0.02)
    return Cluster(process, directory, folder_root, json.loads(ready.read_text()))


def stop(running: Cluster) -> None:
    """Stops the cluster as a user would, and makes sure that it is gone."""
    running.process.send_signal(signal.SIGTERM)
    try:
        code = running.process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        running.process.kill()
        raise
    log = (running.directory / "dev.log").read_text()
    assert code == 0, f"forebay dev ended with {code}:\n{log[-4000:]}"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for all tests; FOREBAY_ENDPOINT names it meanwhile."""
    directory = tmp_path_factory.mktemp("cluster")
    running = start(directory)
    before = os.environ.get("FOREBAY_ENDPOINT")
    os.environ["FOREBAY_ENDPOINT"] = running.endpoint
    try:
        yield running
    finally:
        if before is None:
            del os.environ["FOREBAY_ENDPOINT"]
        else:
            os.environ["FOREBAY_ENDPOINT"] = before
        stop(running)
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def client(cluster: Cluster) -> Any:
    """A client of the cluster."""
    import forebay

    return forebay.Client(cluster.endpoint, timeout=20)


@pytest.fixture
def bucket(client: Any) -> Iterator[Any]:
    """A native bucket of the test's own."""
    own = client.bucket(f"t-{uuid.uuid4().hex[:12]}").create()
    yield own
    own.delete(missing_ok=True)


def python(code: str, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Runs code in a new interpreter."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=timeout
    )
