"""Settings of a local server from the environment: its program, its folder, and the hosts of the job."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

__all__ = ["default_folder", "find_binary", "hosts_of_job"]


def find_binary(environment: Mapping[str, str] = os.environ) -> Path:
    """The ``forebay`` program: ``FOREBAY_BIN``, else that of the package, else on the ``PATH``.

    Raises:
        FileNotFoundError: There is none; the message says what to do.
    """
    if named := environment.get("FOREBAY_BIN"):
        if os.access(named, os.X_OK) and Path(named).is_file():
            return Path(named).resolve()
        raise FileNotFoundError(f"FOREBAY_BIN={named} is no program that can be run")
    scripts = {sysconfig.get_path("scripts"), str(Path(sys.executable).parent)}
    with contextlib.suppress(KeyError):
        scripts.add(sysconfig.get_path("scripts", f"{os.name}_user"))
    for folder in [*sorted(filter(None, scripts)), environment.get("PATH", os.defpath)]:
        if found := shutil.which("forebay", path=folder):
            return Path(found).resolve()
    raise FileNotFoundError(
        "no endpoint is set, and the program `forebay` that would serve one here is missing: set "
        "FOREBAY_ENDPOINT to a cluster, install a wheel of forebay that has the program, or name "
        "it by FOREBAY_BIN"
    )


def default_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Returns the folder in which the server of this user and machine keeps its data.

    A home folder may be shared by machines; a server never is.
    """
    cache = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    machine = "".join(c if c.isalnum() or c in "-." else "-" for c in socket.gethostname())
    return Path(cache) / "forebay" / f"local-{machine or 'machine'}"


def hosts_of_job(environment: Mapping[str, str] = os.environ) -> int:
    """How many hosts the job runs on that this process is a rank of, as torchrun or Slurm say; 1 where
    nobody does."""

    def number(name: str) -> int:
        given = environment.get(name, "")
        return int(given) if given.isdecimal() else 0

    world, local = number("WORLD_SIZE"), number("LOCAL_WORLD_SIZE")
    if world and local:
        return max(1, -(-world // local))
    if "SLURM_PROCID" in environment:
        return max(1, number("SLURM_JOB_NUM_NODES"), number("SLURM_NNODES"))
    return 1
