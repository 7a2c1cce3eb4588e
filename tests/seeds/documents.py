"""The code of the documents that Forebay was asked for by, taken from their text and run.

The documents are not part of the repository. `FOREBAY_SEEDS` names their folder; without it they
are looked for in `shared/seeds` beside the checkout. Without them the tests skip, or fail if
`FOREBAY_REQUIRE_SEEDS` is set; then the run also fails if a block did not run on both storages.

The code of the text is run with no changes but those that a test lists, each with its reason.
"""

from __future__ import annotations

import ast
import os
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

__all__ = [
    "COUNT",
    "Block",
    "BlockCount",
    "Change",
    "Document",
    "are_required",
    "fenced",
    "folder",
    "quoted_code",
    "text_of",
]

STORAGES = {"native": "on native buckets", "cloud": "over clouds, cold and then warm"}
DOCUMENTS = 5
_BESIDE = Path(__file__).resolve().parents[3] / "shared/seeds"
# A line that is likely code: an import, a statement with a block, an assignment of a call or a text.
_CODE = re.compile(
    r"\s*(?:import \w|from [\w.]+ import |(?:with|for|if|class|def) .*:$|@\w|\w[\w, ]* = [\w\"'\[{(])"
)


@dataclass(frozen=True)
class Change:
    """One text that is put in place of another before the code is run.

    Attributes:
        reason: Why the code cannot run as it stands.
    """

    old: str
    new: str
    reason: str


@dataclass(frozen=True)
class Block:
    """A stretch of lines, by the texts of its first and its last one.

    Attributes:
        nth: Which of the lines with the text of the first one it begins at, from 0 on.
    """

    first: str
    last: str
    nth: int = 0


@dataclass
class BlockCount:
    """Which blocks of the documents there are, and which of them ran without an exception.

    Attributes:
        declared: Names of blocks by the numbers of documents.
        ran: Numbers of documents and names of blocks by the storage that they ran on.
    """

    declared: dict[int, list[str]] = field(default_factory=dict)
    ran: dict[str, set[tuple[int, str]]] = field(
        default_factory=lambda: {storage: set() for storage in STORAGES}
    )

    def declare(self, number: int, names: Iterable[str]) -> None:
        """Adds the blocks of a document."""
        self.declared[number] = list(names)

    def missing(self) -> list[str]:
        """Returns the blocks that did not run, a line each."""
        missing = [f"document {n}: no test" for n in range(DOCUMENTS) if n not in self.declared]
        for storage, ran in self.ran.items():
            for number, names in self.declared.items():
                left = [name for name in names if (number, name) not in ran]
                missing += [f"document {number}, {name}: not {STORAGES[storage]}" for name in left]
        return missing

    def lines(self) -> list[str]:
        """The counts, and what did not run if the documents are required."""
        total = sum(map(len, self.declared.values()))
        counts = [f"{len(ran)} of {total} {STORAGES[name]}" for name, ran in self.ran.items()]
        summary = "seeds: code blocks that ran: " + "; ".join(counts)
        return [summary, *self.missing()] if are_required() else [summary]


COUNT = BlockCount()


@dataclass
class Document:
    """A document, and the names that its code has made so far."""

    number: int
    blocks: dict[str, Block]
    changes: Sequence[Change] = ()
    scope: dict[str, Any] = field(default_factory=dict)
    storage: str = "native"

    def __post_init__(self) -> None:
        self.text = text_of(self.number)
        self.scope.setdefault("__name__", f"document_{self.number}")

    def run(self, *names: str) -> dict[str, Any]:
        """Runs blocks in this order; all names that there are then."""
        for name in names:
            code = self.changed(self.code(name))
            exec(compile(code, f"document {self.number}, {name}", "exec"), self.scope)
            COUNT.ran[self.storage].add((self.number, name))
        return self.scope

    def code(self, name: str) -> str:
        """A block as the document has it."""
        first, last = self.lines(name)
        return textwrap.dedent("\n".join(self.text.splitlines()[first : last + 1]))

    def changed(self, code: str) -> str:
        for change in self.changes:
            code = code.replace(change.old, change.new)
        return code

    def lines(self, name: str) -> tuple[int, int]:
        """The numbers of a block's first and last line."""
        block, lines = self.blocks[name], [line.rstrip() for line in self.text.splitlines()]
        begins = [at for at, line in enumerate(lines) if line == block.first]
        assert len(begins) > block.nth, f"the document has no line {block.first!r} any more"
        first = begins[block.nth]
        return first, lines.index(block.last, first)

    def left_out(self, known: Sequence[str] = ()) -> list[str]:
        """Lines that look like code and belong to no block; `known` ones are no code."""
        taken = set()
        for name in self.blocks:
            first, last = self.lines(name)
            taken.update(range(first, last + 1))
        lines = enumerate(self.text.splitlines())
        return [x for at, x in lines if at not in taken and _CODE.match(x) and x.strip() not in known]

    def unused_changes(self) -> list[Change]:
        """Changes that change nothing."""
        whole = [self.code(name) for name in self.blocks]
        return [change for change in self.changes if not any(change.old in code for code in whole)]


def are_required() -> bool:
    """Whether a run without the documents fails."""
    return bool(os.environ.get("FOREBAY_REQUIRE_SEEDS"))


def folder() -> Path:
    """Returns the folder of the documents; without it, skips the test, or fails if they are required."""
    found = Path(os.environ.get("FOREBAY_SEEDS") or _BESIDE)
    if not found.is_dir():
        reason = f"the documents are not in {found}; FOREBAY_SEEDS names their folder"
        if are_required():
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def text_of(number: int) -> str:
    """The document of this number."""
    found = sorted(folder().glob(f"{number:03}_*.txt"))
    assert len(found) == 1, f"{folder()} has {len(found)} documents of the number {number}"
    return found[0].read_text()


def fenced(text: str, language: str) -> list[str]:
    """Returns the contents of the fenced blocks of Markdown in this language."""
    return re.findall(rf"^``` ?{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def quoted_code(text: str) -> list[str]:
    """Returns the literals of Python that follow `'code', `, in pages that were printed as data."""
    return [ast.literal_eval(found) for found in re.findall(r"'code', ('(?:[^'\\]|\\.)*')", text)]
