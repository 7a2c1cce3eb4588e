"""The examples of docs/python do what they say, and no public class is without its page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from forebay_fixture import binary

import forebay
from forebay import aio

PAGES = sorted((Path(__file__).resolve().parents[2] / "docs/python").glob("*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_the_examples_of_a_page_run(
    page: Path, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREBAY_BIN", str(binary()))
    text = page.read_text()
    scope: dict[str, Any] = {"__name__": page.stem, "client": client}
    found = list(BLOCK.finditer(text))
    assert found
    if "import torch" in text:
        pytest.importorskip("torch")
    for block in found:
        # As many empty lines before it as the page has, so that errors name the page's line.
        code = "\n" * text.count("\n", 0, block.start(1)) + block.group(1)
        exec(compile(code, str(page), "exec"), scope)


def test_every_public_class_has_its_page() -> None:
    shown = " ".join(page.read_text() for page in PAGES)
    for name in forebay.__all__:
        if isinstance(getattr(forebay, name), type):
            assert re.search(rf"`{name}\b", shown), name
    assert "AsyncClient" in aio.__all__


def test_every_page_is_in_the_index() -> None:
    index = PAGES[[page.stem for page in PAGES].index("README")].read_text()
    linked = set(re.findall(r"\]\(([\w-]+)\.md\)", index))
    assert linked == {page.stem for page in PAGES} - {"README"}
