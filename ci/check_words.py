#!/usr/bin/env python3
"""Refuses retired words; part of `make check`. Changes nothing.

Names use the field's terms, and comments and documents are plain sentences whose subject is a noun
(docs/glossary.md). A retired identifier counts in code outside of strings, as a whole or as a part of a
longer one in any case style. Patterns of prose count in comments, docstrings and documents, but not in
inline code, fenced blocks and doctests. Needs only the standard library.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from check_house import repository_files

ROOT = Path(__file__).resolve().parent.parent
IDENTIFIERS = frozenset((ROOT / "ci/retired_words.txt").read_text(encoding="utf-8").split())
PROSE = {
    "a machine does not speak": re.compile(r"\b(?:tells?|told|hears?|heard|vouch\w*)\b"),
    "a relative clause as the subject": re.compile(
        r"(?:^|[.!?:]\s+)(?:Who|What|Whoever|Whatever|Whose)\s+(?!is\s+\w+\?)[a-z]+ [^?]*$"
    ),
    "no noun": re.compile(r"\b[Ww]hoever\b"),
}
CODE = {".rs", ".py", ".pyi", ".sh", ".toml"}
COMMENT = re.compile(r"\s*#+\s*")
RUST_COMMENT = re.compile(r"\s*(?://[/!]?|/?\*\s)\s*")
DOCSTRING_MARK = re.compile(r"\s*(?:[rR]?\"\"\")?\s*")
NO_MARK = re.compile("")
FENCE = re.compile(r"\s*(?:```|~~~)")
INLINE_CODE = re.compile(r"(`+)[^`]+\1")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'')
RUST_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def parts(name: str) -> Iterator[str]:
    """All sequences of up to five words of an identifier, in snake case."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_").split("_")
    for begin in range(len(words)):
        for end in range(begin + 1, min(len(words), begin + 5) + 1):
            yield "_".join(words[begin:end])


def docstring_lines(text: str) -> set[int]:
    """Numbers of the lines of Python that belong to a docstring: a string that is a statement."""
    try:
        nodes = ast.walk(ast.parse(text))
        return {
            number
            for node in nodes
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if isinstance(node.value.value, str) and node.end_lineno
            for number in range(node.lineno, node.end_lineno + 1)
        }
    except SyntaxError:
        return set()


def prose_of(name: str, text: str) -> dict[int, str]:
    """The prose of each line that has no code: comments, docstrings, and documents but their blocks.

    Inline code is replaced by one word of its length. The lines of a block or doctest have no prose.
    """
    suffix = Path(name).suffix
    docstrings = docstring_lines(text) if suffix in {".py", ".pyi"} else set()
    prose: dict[int, str] = {}
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        if suffix not in CODE:
            mark = NO_MARK
        elif number in docstrings:
            mark = DOCSTRING_MARK
        else:
            mark = RUST_COMMENT if suffix == ".rs" else COMMENT
        found = mark.match(line)
        if not found:
            fence = ""
            continue
        rest = line[found.end() :]
        bar = FENCE.match(rest)
        if bar and fence in ("", bar[0].strip()):
            fence = "" if fence else bar[0].strip()
        is_code = bar or fence or (number in docstrings and rest.startswith((">>>", "... ")))
        prose[number] = "" if is_code else INLINE_CODE.sub(lambda code: "x" * len(code[0]), rest)
    return prose


def problems_of(name: str, text: str) -> Iterator[str]:
    """Each retired word of a file, with its line."""
    prose = prose_of(name, text)
    string = RUST_STRING if name.endswith(".rs") else STRING
    for number, line in enumerate(text.splitlines(), 1):
        if number not in prose:
            for word in NAME.findall(string.sub("", line)):
                if retired := IDENTIFIERS & set(parts(word)):
                    yield f"{name}:{number}: {word}: {min(retired)} is retired; see docs/glossary.md"
            continue
        for why, pattern in PROSE.items():
            if found := pattern.search(prose[number]):
                # Prose is the end of its line.
                start = len(line) - len(prose[number]) + found.start()
                yield f"{name}:{number}: {why}: {line[start:][: min(40, len(found[0]))].strip()}"


def main() -> int:
    found = []
    for name in repository_files(ROOT):
        path = ROOT / name
        if path == Path(__file__):
            continue
        if path.suffix in CODE or path.suffix == ".md":
            found += problems_of(name, path.read_text(encoding="utf-8", errors="replace"))
    for problem in found:
        print(f"check_words: {problem}", file=sys.stderr)
    print("check_words: ok" if not found else f"check_words: {len(found)} lines")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
