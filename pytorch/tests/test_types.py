"""Both packages are typed: mypy accepts them, and code that uses them as it should."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")
ROOT = Path(__file__).resolve().parents[2]


def mypy(*arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
    cache = ROOT / "build/mypy-cache"
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(cache), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "MYPYPATH": path},
        cwd=ROOT,
    )


@pytest.mark.parametrize("package", ["sdk/python/forebay", "pytorch/src/forebay_torch"])
def test_the_packages_are_strictly_typed(package: str) -> None:
    done = mypy(package, path="sdk/python:pytorch/src")
    assert done.returncode == 0, done.stdout


def test_users_code_is_checked_against_the_types() -> None:
    done = mypy("tests/typing/training.py")
    assert done.returncode == 0, done.stdout
    done = mypy("tests/typing/wrong_training.py")
    found = {line.split(":")[1] for line in done.stdout.splitlines() if ": error:" in line}
    code = (ROOT / "tests/typing/wrong_training.py").read_text().splitlines()
    wrong = {str(n) for n, line in enumerate(code, 1) if n > 3 and line}
    assert found == wrong, done.stdout
