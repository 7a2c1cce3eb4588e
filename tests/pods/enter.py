"""Becomes the first process of a container: mounts, root folder, user and rights as its pod says.

    enter.py SPEC.json

Runs as root and as process 1 of new namespaces for mounts and processes. SPEC has the keys of
`container.Spec`. Needs only the standard library, and imports nothing of this package: it runs as a script.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC = 1, 2, 4, 32, 4096, 16384
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38
DEVICES = ("null", "zero", "full", "random", "urandom")
LIBC = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: Path, kind: str, flags: int = 0, options: str = "") -> None:
    done = LIBC.mount(source.encode(), str(target).encode(), kind.encode(), flags, options.encode())
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {source} at {target}: {os.strerror(number)}")


def bind(source: str, target: Path, read_only: bool) -> None:
    """Mounts a folder or a file, and makes its place first."""
    if Path(source).is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    mount(source, target, "", MS_BIND | MS_REC)
    if read_only:
        mount("", target, "", MS_REMOUNT | MS_BIND | MS_RDONLY)


def root_folder(spec: dict[str, Any]) -> Path:
    """The image with a layer of the container's own above it, in memory."""
    scratch = Path(spec["scratch"])
    mount("tmpfs", scratch, "tmpfs", MS_NOSUID)
    for name in ("upper", "work", "root"):
        (scratch / name).mkdir()
    layers = f"lowerdir={spec['image']},upperdir={scratch}/upper,workdir={scratch}/work"
    mount("overlay", scratch / "root", "overlay", 0, layers)
    return scratch / "root"


def fill(root: Path, spec: dict[str, Any]) -> None:
    """Mounts what every container has, then the volumes of this one."""
    for name in ("proc", "dev"):
        (root / name).mkdir(exist_ok=True)
    mount("proc", root / "proc", "proc", MS_NOSUID | MS_NODEV)
    mount("tmpfs", root / "dev", "tmpfs", MS_NOSUID, "mode=755")
    for name in DEVICES:
        bind(f"/dev/{name}", root / "dev" / name, False)
    (root / "dev/shm").mkdir()
    mount("tmpfs", root / "dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    # The folder above comes before the one inside it.
    for entry in sorted(spec["mounts"], key=lambda m: m["target"]):
        bind(entry["source"], root / entry["target"].lstrip("/"), entry["read_only"])
    if spec["read_only_root"]:
        mount("", root, "", MS_REMOUNT | MS_BIND | MS_RDONLY)


def drop_rights(spec: dict[str, Any]) -> None:
    if spec["drop_capabilities"]:
        last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
        for capability in range(last + 1):
            LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    os.setgroups(spec["groups"])
    os.setresgid(spec["group"], spec["group"], spec["group"])
    os.setresuid(spec["user"], spec["user"], spec["user"])
    # It ends with its parent; the change of the user has reset this.
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if spec["no_new_privileges"]:
        LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    root = root_folder(spec)
    fill(root, spec)
    os.chroot(root)
    os.chdir(spec["folder"])
    os.umask(0o022)
    drop_rights(spec)
    os.execve(spec["argv"][0], spec["argv"], spec["env"])


if __name__ == "__main__":
    main()
