"""The table of what users can rely on: its rows, and the tests that it cites."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = (ROOT / "docs/pytorch/rows.md").read_text()
ROW = re.compile(r"^\| ([A-Z]+\d+) \|", re.MULTILINE)
CITED = re.compile(r"`([\w./]+)::(\w+)`")
ROW_IN_NAME = re.compile(r"(?<=_)(?:DF|AI|DP|S|T|W|L|N|X)\d+(?=_)")
FOLDERS = ("pytorch/tests", "sdk/tests", "tests/python")


def lines() -> dict[str, str]:
    """Every row of the table by its name."""
    return {match[1]: line for line in TABLE.splitlines() if (match := ROW.match(line))}


def names(path: Path) -> set[str]:
    """The tests in a file."""
    text = path.read_text()
    if path.suffix == ".rs":
        return set(re.findall(r"#\[(?:tokio::)?test[^\]]*\]\s*(?:async )?fn (\w+)", text))
    return {
        node.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_the_table_names_only_tests_that_exist() -> None:
    cited = CITED.findall(TABLE)
    assert len(cited) > 100
    missing = []
    known: dict[str, set[str]] = {}
    for file, name in cited:
        if file not in known:
            known[file] = names(ROOT / file) if (ROOT / file).is_file() else set()
        if name not in known[file]:
            missing.append(f"{file}::{name}")
    assert missing == []


def test_every_row_has_a_test_or_says_what_is_missing() -> None:
    there, missing = TABLE.split("## Not there")
    without = {row for row, line in lines().items() if not CITED.search(line)}
    assert without <= set(ROW.findall(missing)) and not set(ROW.findall(there)) & without
    wanted = [
        *(f"DF{n}" for n in range(1, 26)),
        *(f"AI{n}" for n in range(1, 21)),
        *(f"DP{n}" for n in range(1, 15)),
        *(f"S{n}" for n in range(1, 8)),
        *(f"T{n}" for n in range(1, 9)),
        *(f"W{n}" for n in range(1, 5)),
        *(f"L{n}" for n in range(1, 5)),
        "N1",
        *(f"X{n}" for n in range(1, 21)),
    ]
    assert sorted(lines()) == sorted(wanted)


def test_no_test_has_a_row_in_its_name() -> None:
    named = [
        f"{path.name}::{name}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).glob("test_*.py"))
        for name in sorted(names(path))
        if ROW_IN_NAME.search(name)
    ]
    assert named == []
