"""`mypy --strict` accepts the code of users in tests/typing, and only what is right of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")
ROOT = Path(__file__).resolve().parents[2]
CODE = ROOT / "tests/typing"


def mypy(*files: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", "build/mypy-cache"]
    return subprocess.run(
        [*command, *map(str, files)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": "sdk/python:pytorch/src"},
    )


def test_users_code_is_clean_under_mypy_strict() -> None:
    right = [path for path in sorted(CODE.glob("*.py")) if not path.stem.startswith("wrong")]
    assert len(right) >= 2
    done = mypy(*right)
    assert done.returncode == 0, done.stdout


def test_wrong_code_is_refused_line_by_line() -> None:
    path = CODE / "wrong.py"
    lines = path.read_text().splitlines()
    expected = {str(n) for n, line in enumerate(lines, 1) if line.endswith("# wrong")}
    done = mypy(path)
    found = {line.split(":")[1] for line in done.stdout.splitlines() if ": error:" in line}
    assert found == expected, done.stdout
