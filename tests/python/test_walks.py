"""The walks of docs/architecture.md name files and functions that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAX_FILES = 12

Step = tuple[str, list[str]]


def walks() -> dict[str, list[Step]]:
    """The steps of each walk: a file, and the functions that are named for it."""
    text = (ROOT / "docs/architecture.md").read_text()
    section = text.split("\n## Walks\n", 1)[1].split("\n## ", 1)[0]
    found: dict[str, list[Step]] = {}
    for part in section.split("\n### ")[1:]:
        title, body = part.split("\n", 1)
        steps: list[Step] = []
        for line in re.findall(r"(?m)^\d+\. (.+(?:\n   .+)*)", body):
            for file, functions in re.findall(r"`([\w/]+\.(?:rs|py))`: ((?:`\w+`(?:, )?)+)", line):
                steps.append((file, re.findall(r"`(\w+)`", functions)))
        found[title] = steps
    return found


WALKS = walks()


def test_the_requests_that_users_send_most_have_a_walk() -> None:
    titles = " ".join(WALKS)
    for request in ("GET of an object in memory", "GET of a cold object", "PUT", "batch", "ishard"):
        assert request in titles


@pytest.mark.parametrize("title", WALKS)
def test_a_walk_names_functions_that_exist(title: str) -> None:
    missing = []
    for file, functions in WALKS[title]:
        path = ROOT / file
        text = path.read_text() if path.is_file() else ""
        missing += [f"{file}: {name}" for name in functions if not re.search(rf"\b(?:fn|def) {name}\b", text)]
    assert not missing


@pytest.mark.parametrize("title", WALKS)
def test_a_walk_is_short_and_goes_one_way(title: str) -> None:
    files = [file for file, _ in WALKS[title]]
    assert 5 <= len(files) <= MAX_FILES
    assert len(files) == len(set(files)), "it returns to a file"
