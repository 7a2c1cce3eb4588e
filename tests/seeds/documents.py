"""The code of the documents that Forebay was asked for by, taken from their text and run.

The documents are not part of the repository. `FOREBAY_SEEDS` names their folder; without it they
are looked for in `shared/seeds` beside the checkout, and where they are not, the tests skip.

What is run is what the text says but for the changes that a test lists, each with its reason.
"""

from __future__ import annotations

import ast
import os
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Block", "Change", "Document", "fenced", "folder"]

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
class Document:
    """A document, and the names that its code has made so far."""

    number: int
    blocks: dict[str, Block]
    changes: Sequence[Change] = ()
    scope: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.text = text_of(self.number)
        self.scope.setdefault("__name__", f"document_{self.number}")

    def run(self, *names: str) -> dict[str, Any]:
        """Runs blocks in this order; all names that there are then."""
        for name in names:
            code = self.changed(self.code(name))
            exec(compile(code, f"document {self.number}, {name}", "exec"), self.scope)
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


def folder() -> Path:
    """Where the documents are; skips the test where they are not."""
    found = Path(os.environ.get("FOREBAY_SEEDS") or _BESIDE)
    if not found.is_dir():
        pytest.skip("the documents are not here; FOREBAY_SEEDS names their folder")
    return found


def text_of(number: int) -> str:
    """The document of this number."""
    found = sorted(folder().glob(f"{number:03}_*.txt"))
    assert len(found) == 1, f"{folder()} has {len(found)} documents of the number {number}"
    return found[0].read_text()


def fenced(text: str, language: str) -> list[str]:
    """What stands between fences of Markdown that name this language."""
    return re.findall(rf"^``` ?{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def quoted_code(text: str) -> list[str]:
    """What follows `'code', ` as a literal of Python, in pages that were printed as data."""
    return [ast.literal_eval(found) for found in re.findall(r"'code', ('(?:[^'\\]|\\.)*')", text)]
