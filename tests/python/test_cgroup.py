"""A node in a cgroup with less memory than the machine: its budgets follow the limit, and it is shown.

These tests make cgroups, which needs root and a mounted cgroup of version 1 or 2 with the controller of
memory."""

from __future__ import annotations

import json
import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from forebay_cluster import binary, free_ports, wait_until
from forebay_command import Command

MOUNT = Path("/sys/fs/cgroup")
LIMIT_BYTES = 384 << 20


def give_up(why: str) -> None:
    """Skips the test, or fails it with FOREBAY_REQUIRE_LAB set."""
    (pytest.fail if os.environ.get("FOREBAY_REQUIRE_LAB") else pytest.skip)(why)


def parent_and_limit() -> tuple[Path, str]:
    """The folder in which cgroups with the controller of memory are made, and the file of their limit."""
    controllers = MOUNT / "cgroup.controllers"
    if controllers.is_file() and "memory" in controllers.read_text().split():
        with suppress(OSError):
            (MOUNT / "cgroup.subtree_control").write_text("+memory")
        return MOUNT, "memory.max"
    if (MOUNT / "memory/cgroup.procs").is_file():
        return MOUNT / "memory", "memory.limit_in_bytes"
    give_up("no cgroup with the controller of memory is mounted")
    raise AssertionError


def remove(folder: Path) -> None:
    """Removes a cgroup as soon as its last process is gone."""
    for _ in range(100):
        with suppress(OSError):
            folder.rmdir()
        if not folder.exists():
            return
        time.sleep(0.05)
    pytest.fail(f"{folder} has processes: {(folder / 'cgroup.procs').read_text()}")


@pytest.fixture
def group() -> Iterator[Path]:
    """A cgroup without a limit in one with a limit."""
    mount, limit = parent_and_limit()
    outer = mount / f"forebay-test-{uuid.uuid4().hex[:8]}"
    inner = outer / "inner"
    try:
        outer.mkdir()
        (outer / limit).write_text(str(LIMIT_BYTES))
        inner.mkdir()
    except OSError as error:
        if outer.is_dir():
            outer.rmdir()
        give_up(f"cannot make a cgroup with a limit (needs root): {error}")
    yield inner
    remove(inner)
    remove(outer)


def command_in(group: Path, *args: str) -> list[str]:
    """The command line of `forebay` in a cgroup."""
    script = f'echo $$ > "{group}/cgroup.procs" && exec "$@"'
    return ["sh", "-c", script, "sh", str(binary()), *args]


def test_the_version_shows_the_limit_of_a_parent_and_the_machine(group: Path) -> None:
    def machine(command: list[str]) -> dict[str, int]:
        shown: dict[str, int] = json.loads(subprocess.check_output(command))["machine"]
        return shown

    inside = machine(command_in(group, "version", "-o", "json"))
    outside = machine([str(binary()), "version", "-o", "json"])
    assert inside["memory"] == LIMIT_BYTES < inside["host_memory"]
    assert inside["host_memory"] == outside["host_memory"]
    assert 0 < inside["cpus"] <= inside["host_cpus"]


def test_a_node_bounds_its_memory_and_shows_the_limit(group: Path, tmp_path: Path) -> None:
    port = free_ports(1)
    log = tmp_path / "log"
    with log.open("wb") as output:
        line = command_in(group, "serve", "--dir", str(tmp_path / "data"), "--port", str(port))
        process = subprocess.Popen(line, stdout=output, stderr=output)
    try:
        command = Command(f"http://127.0.0.1:{port}", tmp_path)
        wait_until(
            lambda: process.poll() is not None or command("ready").code == 0, "the node ready", 30
        )
        assert process.poll() is None, log.read_text()

        def targets() -> list[str]:
            nodes = json.loads(command.ok("cluster", "info", "-o", "json"))["nodes"]
            return [node["id"] for node in nodes if node["role"] == "target"]

        wait_until(lambda: targets() != [], "the target")
        (target,) = targets()
        wait_until(
            lambda: "may use" in command.ok("node", "get", target), "the report of the node"
        )
        shown = json.loads(command.ok("node", "get", target, "-o", "json"))["usage"]["machine"]
        assert shown["mem_limit"] == LIMIT_BYTES < shown["host_mem"]
        assert "384MiB of " in command.ok("node", "get", target)
        text = log.read_text()
        assert "memory=384MiB" in text, text
        # The default of batches, 128 MiB, is more than a quarter of the limit.
        assert "limits.batch_memory is more than a quarter" in text and "limit=96MiB" in text, text
    finally:
        process.terminate()
        process.wait(20)
