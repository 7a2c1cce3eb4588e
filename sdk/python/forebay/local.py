"""The server of this user and machine, for those who have no cluster at hand.

``Client()`` without an endpoint uses it, and starts it where none runs: one ``forebay serve`` for
all processes of a user on a machine. Its data lie in ``$XDG_CACHE_HOME/forebay``, limited in size;
it stops by itself when no process uses it any more. It reads from clouds with the credentials
in the environment of the process that started it.

It requires a token, which it wrote for this user: other users of the machine get nothing from it.

    $ export FOREBAY_ENDPOINT=$(python -m forebay.local)     # for Forebay's other clients
    $ eval "$(python -m forebay.local env)"                  # for those of AIStore and S3 too
    $ python -m forebay.local stop
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from forebay._platform import needs_endpoint
from forebay.config import LocalSettings, local_settings, notices_enabled
from forebay.errors import ClusterUnavailable
from forebay.file_lock import exclusive
from forebay.local_environment import default_folder, find_binary, hosts_of_job
from forebay.local_http import get, is_ready
from forebay.local_running import Running, read_description
from forebay.notices import format_size, print_notice

__all__ = ["LocalServer", "Running", "default_folder", "find_binary", "has_our_clouds", "join"]

START_DEADLINE_S = 60.0
STOP_DEADLINE_S = 20.0
_POLL_INTERVAL_S = 0.02
# Below the ports that systems give to clients.
_PORTS = range(17400, 27400)
_PORT_IN_USE = 10
_PORT_TRIES = 8
_MAX_LOG_BYTES = 4 << 20
_SIZE = re.compile(r"(?m)^forebay_store_budget_bytes(?:\{[^}]*\})? (\S+)$")
# Variables that decide which clouds a server reaches, and with which credentials.
_CLOUD_PREFIXES = ("AWS_", "GOOGLE_", "AZURE_", "S3_ENDPOINT", "STORAGE_EMULATOR_HOST")


def join(notices: bool | None = None) -> Running:
    """The server of this user and machine, which counts this process as a user from now on.

    Args:
        notices: Whether a line on stderr names the server; by default as the settings have it.

    Raises:
        FileNotFoundError: The program is missing.
        ClusterUnavailable: It is not allowed to start one, or it does not start.
    """
    settings = local_settings()
    if not settings.enabled:
        raise ClusterUnavailable(
            "no endpoint is set, and FOREBAY_LOCAL or the configuration forbids a server of one's "
            "own: set FOREBAY_ENDPOINT"
        )
    if problem := needs_endpoint():
        raise ClusterUnavailable(problem)
    if (hosts := hosts_of_job()) > 1:
        warnings.warn(
            f"no endpoint is set, and this job runs on {hosts} hosts: every host would read everything "
            "from the cloud by itself; set FOREBAY_ENDPOINT to a cluster that all of them reach",
            stacklevel=4,
        )
    server = LocalServer(default_folder(), settings)
    running = server.join(["--private"])
    _print_notice(server, running, notices)
    return running


def _print_notice(server: LocalServer, running: Running, notices: bool | None) -> None:
    """Prints once in a process, and not in each of its children, which server is used."""
    is_first = running.endpoint not in _announced
    _announced.add(running.endpoint)
    is_child = multiprocessing.parent_process() is not None
    if not (running.was_started or (is_first and not is_child)) or not notices_enabled(notices):
        return
    how = "started" if running.was_started else "using"
    size = server.size(running)
    limit = "" if size is None else f"at most {format_size(size)} of "
    print_notice(
        f"no endpoint is set: {how} a server of your own at {running.endpoint}, with {limit}data "
        f"in {server.folder}; set FOREBAY_ENDPOINT to use a cluster"
    )


def has_our_clouds(endpoint: str) -> bool:
    """Whether the server there is that of this user and machine, and reads clouds with the settings
    that the environment of this process has."""
    server = LocalServer(default_folder())
    running = server.running()
    if running is None or running.endpoint != endpoint:
        return False
    return server.has_clouds_of(os.environ) is True


class LocalServer:
    """The server whose data are in one folder, seen from the processes that use it.

    All agreement between processes is by locks of the system, which end with their holder: nothing
    is left behind by a process that is killed, and a number that is used again means nothing.

    ========== =====================================================================
    file       its lock
    ========== =====================================================================
    ``start``  is held by the process that looks for the server, or starts it
    ``lock``   is held by the server as long as it lives
    ``users``  is shared by all who use the server; a server that stops has it alone
    ========== =====================================================================
    """

    def __init__(self, folder: Path, settings: LocalSettings = LocalSettings()) -> None:
        self.folder = folder
        self.settings = settings

    def join(self, options: Sequence[str] = (), env: Mapping[str, str] | None = None) -> Running:
        """The running server, started with these options and this environment if need be.

        Raises:
            FileNotFoundError: The program is missing.
            ClusterUnavailable: It does not start; the message has the end of its log.
        """
        environment = os.environ if env is None else env
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        end = time.monotonic() + START_DEADLINE_S
        with exclusive(self.folder / "start", end):
            self._use(end)
            while True:
                if not self._lives():
                    started = self._start(options, environment, end)
                    self._mark(environment)
                    return replace(started, was_started=True)
                running = self._described()
                if running is not None and is_ready(running.endpoint):
                    if self.has_clouds_of(environment) is False:
                        _warn_of_other_clouds()
                    return running
                if time.monotonic() > end:
                    raise ClusterUnavailable(
                        f"the server in {self.folder} lives but does not answer; its log is "
                        f"{self.log}; `python -m forebay.local stop` ends it"
                    )
                time.sleep(_POLL_INTERVAL_S)

    @property
    def log(self) -> Path:
        """The log of the server."""
        return self.folder / "log"

    def running(self) -> Running | None:
        """The server if there is one that is ready."""
        if not self.folder.is_dir():
            return None
        with exclusive(self.folder / "start", time.monotonic() + START_DEADLINE_S):
            return self._described() if self._lives() else None

    def size(self, running: Running) -> int | None:
        """Most bytes of disk that the server uses; None if it does not answer at once."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            nodes = json.loads(get(running.endpoint, "/api/v1/cluster", running.token))["nodes"]
            urls = [node["url"] for node in nodes if node["role"] == "target"]
            sizes = [_SIZE.search(get(url, "/metrics", running.token)) for url in urls]
            found = [int(float(size[1])) for size in sizes if size]
            return sum(found) if found and len(found) == len(sizes) else None
        return None

    def has_clouds_of(self, environment: Mapping[str, str]) -> bool | None:
        """Whether it was started with the cloud settings of this environment; None if unknown."""
        try:
            salt, digest = (self.folder / "clouds").read_text().split()
        except (OSError, ValueError):
            return None
        return _digest(salt, environment) == digest

    def leave(self) -> None:
        """This process is no user of the server any more."""
        if (held := _users.pop(self._key(), None)) is not None:
            os.close(held)

    def stop(self) -> bool:
        """Ends the server even if other processes use it; returns whether there was one."""
        if not self.folder.is_dir():
            return False
        with exclusive(self.folder / "start", time.monotonic() + START_DEADLINE_S):
            running = self._described()
            if running is None or not self._lives():
                return False
            end = time.monotonic() + STOP_DEADLINE_S
            with contextlib.suppress(ProcessLookupError):
                os.kill(running.pid, signal.SIGTERM)
            while self._lives():
                if time.monotonic() > end:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(running.pid, signal.SIGKILL)
                time.sleep(_POLL_INTERVAL_S)
            _reap()
            return True

    def _key(self) -> str:
        return str(self.folder.resolve())

    def _use(self, end: float) -> None:
        """Waits until the server is not about to end, and keeps it from that."""
        if self._key() in _users:
            return
        descriptor = os.open(self.folder / "users", os.O_RDWR | os.O_CREAT, 0o600)
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    os.close(descriptor)
                    raise ClusterUnavailable(f"the server in {self.folder} does not end") from None
                time.sleep(_POLL_INTERVAL_S)
            else:
                _users[self._key()] = descriptor
                return

    def _described(self) -> Running | None:
        return read_description(self.folder / "serve.json")

    def _lives(self) -> bool:
        """Whether a server has the folder. Asked only where none can be starting: to ask is to
        have the lock for a moment."""
        try:
            descriptor = os.open(self.folder / "lock", os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def _start(self, options: Sequence[str], env: Mapping[str, str], end: float) -> Running:
        program = find_binary(env)
        (self.folder / "serve.json").unlink(missing_ok=True)
        command = [str(program), "serve", "--dir", str(self.folder)]
        command += ["--idle-stop", self.settings.idle_stop]
        if self.settings.size is not None:
            command += ["--size", self.settings.size]
        for _ in range(_PORT_TRIES):
            port = str(random.choice(_PORTS))
            process = self._spawn([*command, "--port", port, *options], env)
            while process.poll() is None:
                running = self._described()
                if running is not None and running.pid == process.pid:
                    return running
                if time.monotonic() > end:
                    process.kill()
                    process.wait()
                    break
                time.sleep(_POLL_INTERVAL_S)
            if process.returncode != _PORT_IN_USE:
                break
        raise ClusterUnavailable(
            f"`{' '.join(command)}` did not start (exit code {process.returncode}):\n{self.tail()}"
        )

    def _spawn(self, command: list[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        too_long = self.log.exists() and self.log.stat().st_size > _MAX_LOG_BYTES
        with open(self.log, "wb" if too_long else "ab", opener=_private) as log:
            # A session of its own: neither Ctrl-C nor the end of a terminal is meant for it.
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**env},
                start_new_session=True,
            )
        _reap()
        _children.append(process)
        return process

    def tail(self, length: int = 2000) -> str:
        """The end of the log."""
        try:
            return self.log.read_text(errors="replace")[-length:]
        except OSError:
            return ""

    def _mark(self, env: Mapping[str, str]) -> None:
        """Stores a salted digest of the cloud settings that the server runs with."""
        salt = os.urandom(16).hex()
        with open(self.folder / "clouds", "w", opener=_private) as mark:
            mark.write(f"{salt} {_digest(salt, env)}")


def _private(path: str, flags: int) -> int:
    """Opens a file that only this user may read."""
    return os.open(path, flags, 0o600)


def _warn_of_other_clouds() -> None:
    warnings.warn(
        "the local server was started with other cloud settings (AWS_*, GOOGLE_*, "
        "AZURE_*) than this process has, and goes on with them; "
        "`python -m forebay.local stop` ends it",
        RuntimeWarning,
        stacklevel=5,
    )


# Endpoints of servers that were found for want of another.
_announced: set[str] = set()
# Locks of this process by folder. A forked child has them too: it uses the server as its parent.
_users: dict[str, int] = {}
# Servers started here: their ends must be asked for, or they stay in the table of processes.
_children: list[subprocess.Popen[bytes]] = []


# Those of a parent are no children of a forked process.
os.register_at_fork(after_in_child=_children.clear)


def _reap() -> None:
    _children[:] = [child for child in _children if child.poll() is None]


def _digest(salt: str, env: Mapping[str, str]) -> str:
    chosen = sorted(item for item in env.items() if item[0].startswith(_CLOUD_PREFIXES))
    return hashlib.sha256((salt + json.dumps(chosen)).encode()).hexdigest()


def _main(arguments: Sequence[str]) -> int:
    server = LocalServer(default_folder(), local_settings())
    match list(arguments):
        case []:
            print(join().endpoint)
        case ["env"]:
            print(join().exports())
        case ["stop"]:
            print("stopped" if server.stop() else "there is none")
        case ["status"]:
            running = server.running()
            print(f"{running.endpoint} (process {running.pid})" if running else "there is none")
        case _:
            print("usage: python -m forebay.local [env | stop | status]", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
