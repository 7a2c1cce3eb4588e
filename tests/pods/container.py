"""A container: processes in namespaces of their own, from the image, with the mounts and rights of its pod."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pods.image import Image

ENTER = Path(__file__).with_name("enter.py")
PR_SET_PDEATHSIG = 1
START_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Mount:
    source: str
    target: str
    read_only: bool


@dataclass(frozen=True)
class Spec:
    """The first process of a container. `image` is a folder, `scratch` an empty one, `folder` one in the image."""

    argv: list[str]
    env: dict[str, str]
    image: str
    scratch: str
    folder: str
    mounts: list[Mount]
    user: int
    group: int
    groups: list[int]
    read_only_root: bool
    drop_capabilities: bool
    no_new_privileges: bool


def rights(pod: Mapping[str, Any], container: Mapping[str, Any], image: Image) -> dict[str, Any]:
    """User and rights of a container, from the securityContext of its pod and its own; else the user of the image."""
    of_pod, own = pod.get("securityContext", {}), container.get("securityContext", {})
    both = {**of_pod, **own}
    user = int(both.get("runAsUser", image.user))
    if both.get("runAsNonRoot") and user == 0:
        raise RuntimeError(f"container {container['name']} must not run as root, and names no other user")
    # With a user of the manifest, the group of the image does not count.
    group = int(both.get("runAsGroup", 0 if "runAsUser" in both else image.group))
    return {
        "user": user,
        "group": group,
        "groups": [int(of_pod.get("fsGroup", group))],
        "read_only_root": bool(own.get("readOnlyRootFilesystem")),
        "drop_capabilities": "ALL" in own.get("capabilities", {}).get("drop", []),
        "no_new_privileges": own.get("allowPrivilegeEscalation") is False,
    }


class Container:
    """A running container. `enter` is the command that runs the next one in the pod's network."""

    def __init__(self, spec: Spec, enter: Sequence[str], log: Path) -> None:
        self.spec = spec
        self._log = log
        Path(spec.scratch).mkdir(parents=True, exist_ok=True)
        file = Path(spec.scratch).with_suffix(".json")
        file.write_text(json.dumps(asdict(spec)))
        file.chmod(0o600)
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", sys.executable, str(ENTER)]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*enter, *unshare, str(file)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=_end_with_the_runner,
            )
        self._first: int | None = None

    @property
    def pid(self) -> int | None:
        """The first process, as this machine numbers it; None before it is there and after its end."""
        if self._first is None:
            children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
            with contextlib.suppress(OSError, IndexError):
                self._first = int(children.read_text().split()[0])
        return self._first

    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def exec(self, argv: Sequence[str], **more: str) -> subprocess.CompletedProcess[str]:
        """Runs a command in the container, as `kubectl exec` and hooks do; `more` is environment."""
        return subprocess.run(
            self._inside(argv),
            env={**self.spec.env, **more},
            capture_output=True,
            text=True,
        )

    def start(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """As `exec`, without waiting; its output goes to the log."""
        with self._log.open("ab") as output:
            return subprocess.Popen(
                self._inside(argv),
                env=self.spec.env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=_end_with_the_runner,
            )

    def signal(self, number: signal.Signals) -> None:
        if self.exit_code() is None and self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, timeout: float) -> bool:
        """Whether it ended within the time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)
        return self.exit_code() is not None

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._process.kill()
        self._process.wait()

    def status(self) -> dict[str, str]:
        """The state of the first process by the kernel: /proc/PID/status."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}

    def mounts(self) -> dict[str, set[str]]:
        """The folders that are mounted in it, each with its options."""
        lines = Path(f"/proc/{self.pid}/mountinfo").read_text().splitlines()
        return {fields[4]: set(fields[5].split(",")) for fields in (line.split() for line in lines)}

    def _inside(self, argv: Sequence[str]) -> list[str]:
        end = time.monotonic() + START_TIMEOUT_S
        while self.pid is None and self.exit_code() is None and time.monotonic() < end:
            time.sleep(0.02)
        if self.pid is None:
            raise RuntimeError(f"container has ended; its log is {self._log}")
        ids = [f"--setuid={self.spec.user}", f"--setgid={self.spec.group}"]
        spaces = [f"--target={self.pid}", "--mount", "--net", "--pid", "--root", "--wd"]
        # An absolute path: the environment is that of the container.
        return [shutil.which("nsenter") or "nsenter", *spaces, *ids, "--", *argv]


def _end_with_the_runner() -> None:
    """No container outlives the thread that started it, however that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
