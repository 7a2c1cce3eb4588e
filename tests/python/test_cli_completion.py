"""Completion of the command line, in the real shells."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
import uuid
from pathlib import Path

import pytest
from conftest import Cluster, free_ports, wait_until
from forebay_command import Command


@pytest.fixture
def forebay(cluster: Cluster, tmp_path: Path) -> Command:
    return Command.of(cluster, tmp_path)


@pytest.fixture
def path(forebay_bin: Path, tmp_path: Path) -> str:
    """A PATH that has the program under test as `forebay`."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/forebay").symlink_to(forebay_bin)
    return f"{tmp_path}/bin:{os.environ['PATH']}"


def typed(shell: list[str], keys: str, path: str, endpoint: str, prompt: str) -> str:
    """The text that an interactive shell shows after these keys."""
    env = {"PATH": path, "FOREBAY_ENDPOINT": endpoint, "TERM": "dumb", "HOME": "/nonexistent"}
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(shell[0], shell, env)
    shown = ""

    def read_until(text: str, deadline_s: float = 20.0) -> None:
        nonlocal shown
        end = time.monotonic() + deadline_s
        while text not in shown and time.monotonic() < end:
            if select.select([terminal], [], [], 0.1)[0]:
                shown += os.read(terminal, 4096).decode(errors="replace")

    try:
        os.write(terminal, f"PS1='{prompt[0]}''{prompt[1:]}'\n".encode())
        read_until(prompt)
        load = {"bash": "source <(forebay completion bash)"}.get(
            shell[0], "autoload -U compinit; compinit -u -D; source <(forebay completion zsh)"
        )
        shown = ""
        os.write(terminal, f"{load}; echo lo''aded\n".encode())
        read_until("loaded")
        read_until(prompt)
        shown = ""
        os.write(terminal, keys.encode())
        # The line is sent only when it is complete.
        before, quiet = "", 0
        end = time.monotonic() + 10
        while quiet < 10 and time.monotonic() < end:
            if select.select([terminal], [], [], 0.1)[0]:
                shown += os.read(terminal, 4096).decode(errors="replace")
            quiet = quiet + 1 if shown == before else 0
            before = shown
        return shown
    finally:
        os.close(terminal)
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def bash(keys: str, path: str, endpoint: str) -> str:
    return typed(["bash", "--norc", "--noprofile", "-i"], keys, path, endpoint, "%%ready")


def test_bash_completes_commands_and_options(path: str, forebay: Command) -> None:
    assert "forebay presign " in bash("forebay presi\t", path, forebay.endpoint)
    assert "sync --delete " in bash("forebay sync --del\t", path, forebay.endpoint)


def test_bash_completes_a_bucket_behind_the_colon_of_its_scheme(
    path: str, forebay: Command
) -> None:
    bucket = f"only-{uuid.uuid4().hex[:12]}"
    forebay.ok("mb", f"ais://{bucket}")
    shown = bash("forebay ls ais://only-\t", path, forebay.endpoint)
    assert f"ais://{bucket}/" in shown and "ais:ais:" not in shown, shown


def test_bash_completes_nodes_and_jobs(path: str, cluster: Cluster, forebay: Command) -> None:
    node = cluster.targets[0]["id"]
    assert f"{node} " in bash(f"forebay node drain {node[:-1]}\t\t", path, forebay.endpoint) or (
        node in bash(f"forebay node drain {node[:-1]}\t\t", path, forebay.endpoint)
    )
    bucket = f"ais://t-{uuid.uuid4().hex[:12]}"
    forebay.ok("mb", bucket)
    forebay.ok("put", "-", f"{bucket}/x", text="x")
    job = forebay.ok("scrub", bucket, "-o", "name").strip()
    wait_until(lambda: job in forebay.ok("job", "ls", "-o", "name"), "the job is listed")
    assert job in bash(f"forebay job get {job[:-2]}\t", path, forebay.endpoint)


def test_without_a_cluster_no_name_is_shown_and_nothing_hangs(
    forebay_bin: Path, tmp_path: Path
) -> None:
    refused = f"http://127.0.0.1:{free_ports(1)}"
    # Packets to this address of documentation get no answer.
    for endpoint in (refused, "http://192.0.2.1:7400"):
        start = time.monotonic()
        done = subprocess.run(
            [str(forebay_bin), "__complete", "job", "get", ""],
            capture_output=True,
            text=True,
            env={"FOREBAY_ENDPOINT": endpoint, "HOME": str(tmp_path)},
            timeout=20,
            check=True,
        )
        took = time.monotonic() - start
        assert (done.stdout, done.stderr) == ("", "") and took < 3, (endpoint, took, done)


def test_zsh_completes_commands_and_buckets(path: str, forebay: Command) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    bucket = f"only-{uuid.uuid4().hex[:12]}"
    forebay.ok("mb", f"ais://{bucket}")

    def zsh(keys: str) -> str:
        return typed(["zsh", "-f", "-i"], keys, path, forebay.endpoint, "%%ready")

    assert "presign" in zsh("forebay presi\t")
    assert f"ais://{bucket}/" in zsh(f"forebay ls ais://{bucket[:-3]}\t")
