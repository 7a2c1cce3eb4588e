"""How much memory some code needs, as the kernel counts it."""

from __future__ import annotations

import subprocess
import sys

import pytest

__all__ = ["needs_proc", "peak_growth"]

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

# The peak begins anew before the code: that of getrusage would be inherited from the process that started the
# process, and that of the preparations is not asked for.
_PROGRAM = """
import re, sys
def _memory(what):
    return int(re.search(what + r":\\s+(\\d+) kB", open("/proc/self/status").read())[1]) << 10
{prepare}
open("/proc/self/clear_refs", "w").write("5")
_before = _memory("VmRSS")
{code}
print(_memory("VmHWM") - _before)
"""


def peak_growth(prepare: str, code: str, *arguments: str, timeout: float = 240) -> int:
    """Bytes by which ``code`` makes a new process's memory larger, at its peak, than it was after
    ``prepare``. Both see ``sys.argv[1:]``, and print nothing.
    """
    program = _PROGRAM.format(prepare=prepare, code=code)
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)
