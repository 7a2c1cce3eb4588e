"""What to say where the native core cannot be loaded."""

from __future__ import annotations

import platform
import sys

__all__ = ["explain"]

_MACHINES = ("x86_64", "aarch64")


def explain(
    error: ImportError, system: str = sys.platform, machine: str = platform.machine()
) -> str:
    """One sentence: why it cannot be loaded here, and what to do."""
    if system != "linux" or machine not in _MACHINES:
        return (
            f"forebay runs on Linux on x86-64 and aarch64, and this is {system} on {machine}: use "
            "it in a container or on another machine, or read the cluster over its S3 interface"
        )
    return (
        f"the native core of forebay cannot be loaded by Python {platform.python_version()}: "
        f"{error}; install the package again, by a wheel for this Python or from its sources"
    )
