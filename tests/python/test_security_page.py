"""docs/security-tests.md: each row has its tests, and each test that it names exists."""

from __future__ import annotations

import re
import sys

import pytest
from conftest import REPOSITORY

sys.path[:0] = [str(REPOSITORY / "ci"), str(REPOSITORY / "ci/mutants")]
import check_house  # noqa: E402
import mutants  # noqa: E402

PAGE = (REPOSITORY / "docs/security-tests.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if re.match(r"\| [A-Z]", line)]
GOALS = [f"S{n}" for n in range(1, 11)]


def test_every_test_that_the_page_names_exists() -> None:
    cited = check_house.CITED.findall(PAGE)
    assert len(cited) > 100
    files = {name for name, _ in cited}
    known = {name: check_house.tests_in(REPOSITORY, name) for name in files}
    assert sorted({f"{name}::{test}" for name, test in cited if test not in known[name]}) == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_every_row_names_a_test(row: str) -> None:
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert len(cells) == 4 and all(cells)
    assert check_house.CITED.search(cells[3])


def test_every_goal_has_one_row() -> None:
    assert [row.split("|")[1].strip() for row in ROWS if re.match(r"\| S\d+ ", row)] == GOALS


def test_every_row_has_a_mutant_and_every_guard_is_in_its_file_once() -> None:
    """`make mutants` compiles and runs them; here the data must not differ from the code and the page."""
    every = mutants.load()
    assert len(every) > 100
    assert list(mutants.problems(every, PAGE, REPOSITORY)) == []
    assert mutants.listing(every, PAGE) in PAGE


def test_a_guard_that_was_changed_is_noticed() -> None:
    edit = mutants.Edit("a.rs", "if is_own(x) {", "is_own(x)", "true")
    assert edit.problem("fn f() { if is_own(x) { 1 } }") is None
    assert "0 times" in (edit.problem("fn f() { if is_mine(x) { 1 } }") or "")
    assert "2 times" in (edit.problem("if is_own(x) {} if is_own(x) {}") or "")
    mutant = mutants.Mutant("own", "S1", (), (edit,))
    both = mutants.compiled("fn f() { if is_own(x) { 1 } }", [(mutant, edit)])
    assert both.startswith("fn f() { if (if {") and both.endswith("{ true } else { is_own(x) }) { 1 } }")
    assert 'var_os("ACTIVE_MUTANT").is_some_and(|id| id == "own")' in both
