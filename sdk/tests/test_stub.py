"""The typed description of the native core matches what is in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def test_the_stub_describes_the_native_core(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    allowed = tmp_path / "allowed"
    # Python shows the buffer protocol of native classes as a method only since 3.12.
    allowed.write_text("forebay._core.Buffer.__buffer__\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "forebay._core", "--allowlist", str(allowed),
         "--ignore-unused-allowlist"],
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
