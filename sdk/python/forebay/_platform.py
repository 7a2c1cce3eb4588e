"""Error messages for platforms where a part of the package cannot work."""

from __future__ import annotations

import platform
import sys

__all__ = ["explain", "needs_endpoint"]

_MACHINES = ("x86_64", "aarch64")


def explain(
    error: ImportError, system: str = sys.platform, machine: str = platform.machine()
) -> str:
    """One sentence: why the native core cannot be loaded here, and what to do."""
    if system == "darwin":
        return (
            f"the wheels of forebay are for Linux on x86-64 and aarch64, and this is {system} on {machine}: "
            "install its client from the source package, which takes a Rust toolchain "
            "(pip install --no-binary forebay forebay)"
        )
    if system != "linux" or machine not in _MACHINES:
        return (
            f"forebay runs on Linux on x86-64 and aarch64, and this is {system} on {machine}: use "
            "it in a container or on another machine, or read the cluster over its S3 interface"
        )
    return (
        f"the native core of forebay cannot be loaded by Python {platform.python_version()}: "
        f"{error}; install the package again, by a wheel for this Python or from its sources"
    )


def needs_endpoint(system: str = sys.platform) -> str | None:
    """Why no server can be started on this system, and what to do; None where one can be started."""
    if system == "linux":
        return None
    return f"no server can be started on {system}: set FOREBAY_ENDPOINT to a cluster"
