"""Real processes for the Python tests: clusters of `forebay dev`, and what they say of themselves.

Nothing here is simulated, and nothing is a fixture: those are in conftest.py (for tests of the
running product) and in forebay_fixture.py (for the tests of the two Python packages).
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest
from forebay_secrets import first_secret, outputs_of

REPOSITORY = Path(__file__).resolve().parents[2]
START_DEADLINE_S = 30.0
STOP_DEADLINE_S = 20.0
_SAMPLE = re.compile(r"(?m)^([a-z_]+)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'([a-z_]+)="([^"]*)"')


def binary() -> Path:
    """The program under test: FOREBAY_BIN, else the release build."""
    path = Path(os.environ.get("FOREBAY_BIN") or REPOSITORY / "build/release/forebay")
    if not path.is_file():
        pytest.fail(f"{path} does not exist; run `make binary`, or set FOREBAY_BIN")
    return path.resolve()


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


def metrics_of(
    url: str, token: str | None = None, ca: str | None = None
) -> list[tuple[str, dict[str, str], float]]:
    """Every figure of a node's /metrics: name, labels, value."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"{url}/metrics", headers=headers)
    context = None if ca is None else ssl.create_default_context(cafile=ca)
    with urllib.request.urlopen(request, timeout=10, context=context) as answer:
        text = answer.read().decode()
    return [
        (name, dict(_LABEL.findall(labels or "")), float(value))
        for name, labels, value in _SAMPLE.findall(text)
    ]


def first_panic(log: str) -> str | None:
    """The first panic in a node's log with the lines behind it; None if there is none."""
    lines = log.splitlines()
    found = (at for at, line in enumerate(lines) if "panicked" in line)
    return next(("\n".join(lines[at : at + 12]) for at in found), None)


@dataclass
class Cluster:
    """A running `forebay dev`: separate processes on 127.0.0.1."""

    process: subprocess.Popen[bytes]
    folder: Path
    info: dict[str, Any]
    log: Path

    @classmethod
    def start(
        cls,
        folder: Path,
        *,
        gateways: int = 1,
        targets: int = 3,
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> Self:
        """Starts a cluster with its data in `folder` and waits until it is ready."""
        log = folder / "log"
        port = free_ports(gateways + targets)
        command = [str(binary()), "dev", "--dir", str(folder), "--port", str(port)]
        command += ["--gateways", str(gateways), "--targets", str(targets), *options]
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
        return cls(process, folder, json.loads(ready.read_text()), log)

    @property
    def endpoint(self) -> str:
        return str(self.info["endpoint"])

    @property
    def targets(self) -> list[dict[str, Any]]:
        return list(self.info["targets"])

    def count(self, name: str, **labels: str) -> float:
        """The sum of a counter over all targets, of those samples that have these labels."""
        return sum(
            value
            for node in self.targets
            for sample, has, value in metrics_of(node["url"])
            if sample == name and labels.items() <= has.items()
        )

    def kill(self, node_id: str) -> None:
        """kill -9 of one node, as a crash would."""
        nodes = self.info["gateways"] + self.info["targets"]
        os.kill(next(n["pid"] for n in nodes if n["id"] == node_id), signal.SIGKILL)

    def stop(self) -> None:
        """Stops it as a user would; fails the test when it does not go, or not in peace."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                code = self.process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                pytest.fail(f"the cluster did not stop on SIGTERM:\n{self.tail()}")
            if code != 0:
                pytest.fail(f"`forebay dev` ended with {code} on SIGTERM:\n{self.tail()}")
        self.fail_on_panics()
        if found := first_secret(self.folder, [self.log, *outputs_of(self.folder)]):
            pytest.fail(f"a secret is in a log, a span or a metric: {found}")

    def fail_on_panics(self) -> None:
        """Fails the test run if a node panicked, whatever the tests saw of it."""
        for log in [self.log, *sorted(self.folder.glob("*/log"))]:
            if log.is_file() and (panic := first_panic(log.read_text(errors="replace"))):
                pytest.fail(f"a node panicked; {log} has\n{panic}")

    def tail(self) -> str:
        """The ends of all logs, for a failure's message."""
        logs = [self.log, *sorted(self.folder.glob("*/log"))]
        return "\n".join(
            f"--- {log.parent.name}/{log.name}\n{log.read_text(errors='replace')[-1500:]}"
            for log in logs
            if log.is_file()
        )
