"""The mutants of docs/security-tests.md: guards, each with a text in which it is removed.

All guards in Rust are compiled once, side by side with their mutants: the condition in front of them reads the
environment variable `ACTIVE_MUTANT`. The name does not begin with FOREBAY_, because tests hide such variables from
the nodes that they start. Guards in other files are replaced for each run. Needs only the standard library.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(__file__).resolve().parent
PAGE = "docs/security-tests.md"
VARIABLE = "ACTIVE_MUTANT"
CITED = re.compile(r"`([\w./-]+\.(?:rs|py)::\w+)`")


@dataclass(frozen=True)
class Edit:
    """One guard, and the code in its place."""

    file: str
    # Code that is in the file once, with the guard in it. It is the guard itself if that is enough.
    within: str
    guard: str
    removed: str

    def problem(self, text: str) -> str | None:
        """Why the guard cannot be found in the text of its file."""
        if (count := text.count(self.within)) != 1:
            return f"{self.file} has {count} times, not once: {self.within}"
        if (count := self.within.count(self.guard)) != 1:
            return f"{self.file}: the guard is {count} times in its context, not once: {self.guard}"
        return None

    def place(self, text: str) -> tuple[int, int]:
        start = text.index(self.within) + self.within.index(self.guard)
        return start, start + len(self.guard)


@dataclass(frozen=True)
class Mutant:
    """A guard that is removed, with the tests that fail without it. Several edits are one guard in depth."""

    id: str
    # Text of the first two cells of a row of the page.
    row: str
    tests: tuple[str, ...]
    edits: tuple[Edit, ...]

    @property
    def is_compiled(self) -> bool:
        return self.edits[0].file.endswith(".rs")


@dataclass(frozen=True)
class Row:
    """A row of the page: an attack or a published class, with its tests."""

    name: str
    kind: str
    tests: tuple[str, ...]

    def is_named(self, text: str) -> bool:
        """Whether a mutant with this `row` belongs here. The goals are S1 to S10."""
        return self.name == text or (not re.fullmatch(r"S\d+", text) and text in f"{self.name}: {self.kind}")


def rows(page: str) -> list[Row]:
    """The rows of the page."""
    found = []
    for line in page.splitlines():
        if re.match(r"\| [A-Z]", line):
            name, kind, _, tests = (cell.strip() for cell in line.strip("|").split("|"))
            found.append(Row(name, kind, tuple(CITED.findall(tests))))
    return found


def load() -> list[Mutant]:
    """All mutants, in the order of the data files."""
    found = []
    for file in sorted(DATA.glob("*.toml")):
        for entry in tomllib.loads(file.read_text(encoding="utf-8"))["mutant"]:
            edits = tuple(
                Edit(e["file"], e.get("within", e["guard"]), e["guard"], e["removed"]) for e in entry["edit"]
            )
            found.append(Mutant(entry["id"], entry["row"], tuple(entry["tests"]), edits))
    return found


def problems(mutants: list[Mutant], page: str, root: Path) -> Iterator[str]:
    """The faults of the data: ids, rows, tests, and guards that are not in their files once."""
    ids = [mutant.id for mutant in mutants]
    yield from (f"{name}: the id is there twice" for name in sorted({i for i in ids if ids.count(i) > 1}))
    listed = rows(page)
    for mutant in mutants:
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", mutant.id):
            yield f"{mutant.id}: an id has small letters, digits and hyphens"
        named = [row for row in listed if row.is_named(mutant.row)]
        if len(named) != 1:
            yield f"{mutant.id}: {len(named)} rows of {PAGE} have the text {mutant.row!r}, not one"
            continue
        yield from (
            f"{mutant.id}: {PAGE} does not name {test} in the row {mutant.row!r}"
            for test in mutant.tests
            if test not in named[0].tests
        )
        if not mutant.tests:
            yield f"{mutant.id}: no test"
        if len({edit.file.endswith(".rs") for edit in mutant.edits}) != 1:
            yield f"{mutant.id}: guards in Rust and in other files"
        for edit in mutant.edits:
            text = (root / edit.file).read_text(encoding="utf-8")
            if (problem := edit.problem(text)) is not None:
                yield f"{mutant.id}: {problem}"
    for file in sorted({edit.file for mutant in mutants if mutant.is_compiled for edit in mutant.edits}):
        yield from overlaps(file, mutants, (root / file).read_text(encoding="utf-8"))
    for row in listed:
        if not any(row.is_named(mutant.row) for mutant in mutants):
            yield f"{PAGE}: the row {row.name!r}, {row.kind!r} has no mutant"


def listing(mutants: list[Mutant], page: str) -> str:
    """The list of mutants in the page: a line for each row, in the order of the rows."""
    lines = []
    for row in rows(page):
        named = [mutant for mutant in mutants if row.is_named(mutant.row)]
        ids = ", ".join(f"`{mutant.id}`" for mutant in named)
        lines += [f"- {named[0].row}: {ids}"] if named else []
    return "\n".join(lines)


def edits_of(file: str, mutants: list[Mutant]) -> list[tuple[Mutant, Edit]]:
    return [(m, edit) for m in mutants for edit in m.edits if edit.file == file]


def overlaps(file: str, mutants: list[Mutant], text: str) -> Iterator[str]:
    """Guards of which one is in another: they cannot be compiled side by side, unless they are the same."""
    places = {}
    for mutant, edit in edits_of(file, mutants):
        if edit.problem(text) is None:
            places.setdefault(edit.place(text), mutant.id)
    ordered = sorted(places)
    for (_, end), (start, last) in zip(ordered, ordered[1:], strict=False):
        if start < end:
            yield f"{places[start, last]}: its guard in {file} overlaps that of another mutant"


def compiled(text: str, edits: list[tuple[Mutant, Edit]]) -> str:
    """The text of a Rust file with both forms of each guard. A guard may have several mutants."""
    places: dict[tuple[int, int], list[tuple[Mutant, Edit]]] = {}
    for mutant, edit in edits:
        places.setdefault(edit.place(text), []).append((mutant, edit))
    for (start, end), found in sorted(places.items(), reverse=True):
        guard = text[start:end]
        is_statement = guard.rstrip().endswith((";", "}"))
        branches = "".join(f"if {switch(mutant.id)} {{ {edit.removed} }} else " for mutant, edit in found)
        both = f"{branches}{{ {guard} }}"
        text = text[:start] + (both if is_statement else f"({both})") + text[end:]
    return text


def switch(name: str) -> str:
    """A condition in Rust: whether this mutant is the active one. It reads the environment once."""
    return (
        "{ static IS: std::sync::OnceLock<bool> = std::sync::OnceLock::new(); "
        f'*IS.get_or_init(|| std::env::var_os("{VARIABLE}").is_some_and(|id| id == "{name}")) }}'
    )


if __name__ == "__main__":
    print(listing(load(), (ROOT / PAGE).read_text(encoding="utf-8")))
