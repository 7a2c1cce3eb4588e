"""The check of retired words finds them in code, comments, docstrings and documents."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import REPOSITORY

CHECK = REPOSITORY / "ci/check_words.py"
sys.path.insert(0, str(CHECK.parent))
import check_words  # noqa: E402


def problems(name: str, text: str) -> list[str]:
    return list(check_words.problems_of(name, text))


@pytest.mark.parametrize(
    ("name", "text", "line", "expected"),
    [
        ("a.rs", "//! A.\nfn settled() {}\n", 2, "settled: settled is retired"),
        ("a.rs", "struct EvictorBell;\n", 1, "EvictorBell: evictor_bell is retired"),
        ("a.rs", "    *self.patience.lock() = 1;\n", 1, "patience: patience is retired"),
        ("a.py", "told = 1\n", 1, "told: told is retired"),
        ("a.py", "f(*patience)\n", 1, "patience: patience is retired"),
        ("a.sh", "upkeep=1\n", 1, "upkeep: upkeep is retired"),
        ("a.toml", "patience = 3\n", 1, "patience: patience is retired"),
        ("a.rs", "/// What stands here.\n", 1, "a relative clause as the subject: What stands here."),
        ("a.rs", "/// A target tells another.\n", 1, "a machine does not speak: tells"),
        ("a.py", "# The owner is told.\n", 1, "a machine does not speak: told"),
        ("a.py", '"""What stands here."""\n', 1, "a relative clause as the subject"),
        ("a.py", '"""What `f` returns."""\n', 1, "a relative clause as the subject: What `f` returns."),
        ("a.py", '"""Waits.\n\nThe owner tells others.\n"""\n', 3, "a machine does not speak: tells"),
        ("a.py", 'def f():\n    """Waits.\n\n    Whoever reads waits.\n    """\n', 4, "no noun: Whoever"),
        ("a.md", "A node hears of it.\n", 1, "a machine does not speak: hears"),
        ("a.md", "```\ntold = 1\n```\nThe owner is told.\n", 4, "a machine does not speak: told"),
    ],
)
def test_a_retired_word_is_found(name: str, text: str, line: int, expected: str) -> None:
    found = problems(name, text)
    assert found and all(problem.startswith(f"{name}:{line}: ") for problem in found), found
    assert any(expected in problem for problem in found), found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.rs", '//! Waits for `told`.\nfn wait() {\n    info!("settled");\n}\n'),
        ("a.rs", "/// Waits.\n/// ```\n/// let told = f.tell();\n/// ```\nfn wait() {}\n"),
        ("a.py", '"""Returns the position, as ``file.tell()``."""\n\nposition = file.tell()\n'),
        ("a.py", 'def f():\n    """Waits.\n\n    The work begun before ends.\n    """\n'),
        ("a.py", 'def f():\n    """Waits.\n\n    >>> file.tell()\n    1024\n    """\n'),
        ("a.md", "`told` is a name.\n\n```python\nassert told.steps == file.tell()\n```\n\nDone.\n"),
        ("a.md", "~~~\nwhoever\n```\ntold\n~~~\n"),
        ("a.md", "What is forked?\n"),
        ("a.py", "names = ['told', \"it's \\\"settled\\\"\"]\n"),
        ("a.sh", '# Waits.\necho "patience"\n'),
    ],
)
def test_a_plain_file_has_no_problem(name: str, text: str) -> None:
    assert problems(name, text) == []


def test_python_files_and_documents_have_no_problem() -> None:
    if not (REPOSITORY / ".git").exists():
        pytest.skip("not a git checkout")
    done = subprocess.run([sys.executable, CHECK], capture_output=True, text=True)
    assert [line for line in done.stderr.splitlines() if ".rs:" not in line] == []
