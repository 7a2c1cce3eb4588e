"""The examples of the docs do what they say, those of a page one after the other."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

import forebay_torch

DOCS = Path(__file__).resolve().parents[2] / "docs"
CLASSES = sorted((DOCS / "pytorch").glob("*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WITHOUT_CODE = ("README.md", "frameworks.md", "rows.md")


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("page", [DOCS / "training.md", *CLASSES], ids=lambda page: page.stem)
def test_the_examples_of_a_page_run(
    page: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if page.name in WITHOUT_CODE:
        pytest.skip("a page without examples")
    if page.name == "nodes.md":
        pytest.importorskip("torchdata")
    # Examples write files where they run.
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    # Workers that were forked find the page's classes by the name of their module.
    module = type(sys)(f"page_{page.stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    found = list(BLOCK.finditer(text))
    assert found
    for block in found:
        # As many empty lines before it as the page has, so that errors name the page's line.
        code = "\n" * text.count("\n", 0, block.start(1)) + block.group(1)
        exec(compile(code, str(page), "exec"), module.__dict__)


def test_every_public_name_is_on_a_page() -> None:
    documented = "".join(page.read_text() for page in CLASSES)
    assert [n for n in forebay_torch.__all__ if n != "__version__" and f"`{n}`" not in documented] == []


def test_every_page_is_in_the_table_of_pages() -> None:
    table = (DOCS / "pytorch/README.md").read_text()
    assert [page.name for page in CLASSES if f"({page.name})" not in table] == ["README.md"]
