"""Faults that tests cause: links slow or cut, damaged bytes, full disks, nodes that crash, wrong clocks."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
from forebay_clouds import answers, stop
from forebay_cluster import REPOSITORY, START_DEADLINE_S, Cluster, wait_until


class Link:
    """A TCP port that leads to an address until it is cut."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.delay_s = 0.0
        """How long each piece of an answer takes."""
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        self.open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.create_connection(self.address)
                self.open += [near, far]
                for source, sink in ((near, far), (far, near)):
                    slow = source is far
                    threading.Thread(target=self._copy, args=(source, sink, slow), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket, slow: bool) -> None:
        with suppress(OSError), closing(sink):
            while received := source.recv(1 << 16):
                if slow:
                    time.sleep(self.delay_s)
                sink.sendall(received)

    def cut(self) -> None:
        """Ends all connections and refuses new ones."""
        self.listener.shutdown(socket.SHUT_RDWR)
        for end in (self.listener, *self.open):
            end.close()


def damage(folder: Path, payload: bytes) -> int:
    """Changes one byte of each copy of a payload on the disks below a folder; returns their number."""
    found = 0
    for path in sorted(folder.rglob("*")):
        if path.is_file() and (at := path.read_bytes().find(payload)) >= 0:
            with path.open("r+b") as file:
                file.seek(at + len(payload) // 2)
                file.write(bytes([payload[len(payload) // 2] ^ 1]))
            found += 1
    return found


def unplug(disk: Path) -> None:
    """Takes the folder of a disk away, as if its mount were gone."""
    disk.rename(disk.with_name(f"{disk.name}-unplugged"))
    disk.write_text("no folder")


def mount_small_file_system(folder: Path, size: str, stack: ExitStack) -> None:
    """Makes a folder and mounts a file system in memory there, until `stack` ends.

    Skips the test if this user may not mount, or fails with FOREBAY_REQUIRE_LAB set."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "forebay-test", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        give_up = pytest.fail if os.environ.get("FOREBAY_REQUIRE_LAB") else pytest.skip
        give_up(f"cannot mount a file system (needs root): {done.stderr.strip()}")
    # Lazy: a process that did not end yet may hold a file there.
    stack.callback(subprocess.run, ["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path, free_bytes: int) -> None:
    """Writes a file of a foreign program that leaves this many bytes of the file system free."""
    now = os.statvfs(folder)
    with (folder / "foreign").open("ab") as file:
        end = file.seek(0, os.SEEK_END)
        os.posix_fallocate(file.fileno(), end, now.f_bavail * now.f_frsize - free_bytes)


def is_running(pid: int) -> bool:
    """Whether a process runs: a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def crash_and_start(cluster: Cluster, node_id: str, stack: ExitStack, before: str = "") -> None:
    """Kills a node and starts it again by its command, after these commands of the shell; waits for it.

    `forebay dev` stops the new process too, when it stops."""
    folder = cluster.folder / node_id
    pid = int((folder / "state/pid").read_text())
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_running(pid), f"{node_id} ended")
    command = f"{before}\nexec {(folder / 'cmd').read_text()}"
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(["sh", "-c", command], stdout=log, stderr=log)
    stack.callback(stop, process)
    node = next(n for n in cluster.info["gateways"] + cluster.targets if n["id"] == node_id)
    wait_until(lambda: answers(f"{node['url']}/readyz"), f"{node_id} ready", START_DEADLINE_S)


def shifted_clock(folder: Path, seconds: int) -> str:
    """Commands of the shell after which a process has its wall clock this many seconds ahead.

    It is the library of the tests in Rust, whose text is in tests/src/clock.rs."""
    found = re.search(r'(?s)r#"(.*?)"#', (REPOSITORY / "tests/src/clock.rs").read_text())
    assert found
    (folder / "clock.c").write_text(found[1])
    library = folder / "libclock.so"
    compiler = os.environ.get("CC", "cc")
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(folder / "clock.c")]
    subprocess.run(command, check=True)
    return f"export LD_PRELOAD='{library}' CLOCK_SHIFT_S={seconds}"
