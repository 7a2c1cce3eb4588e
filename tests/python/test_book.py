"""Links in the book: those that stay inside of docs/ work, those that leave it become text."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest
from conftest import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "ci"))
import book_links


@pytest.mark.parametrize(
    ("page", "text", "expected"),
    [
        ("a.md", "[b](b.md#c) and [x](https://x/y.md)", "[b](b.md#c) and [x](https://x/y.md)"),
        ("a.md", "[all](python/README.md#x)", "[all](python/index.md#x)"),
        ("book/a.md", "[up](../README.md)", "[up](../index.md)"),
        ("book/a.md", "[why](../decisions.md#cache)", "[why](../decisions.md#cache)"),
        ("a.md", "see [the chart](../deploy/README.md#x).", "see the chart (`deploy/README.md`)."),
        ("book/a.md", "[`core/a.rs`](../../core/a.rs)", "`core/a.rs`"),
        ("a.md", "```\n[x](../y)\n```\n[x](../y)", "```\n[x](../y)\n```\nx (`y`)"),
        ("a.md", "[here](#place)", "[here](#place)"),
    ],
)
def test_links_of_a_page(page: str, text: str, expected: str) -> None:
    assert book_links.book_text(text, page) == expected


def test_every_chapter_of_the_book_is_rewritten(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def chapter(path: str, *below: Any) -> dict[str, Any]:
        content = {"content": "[x](../README.md)", "source_path": path, "sub_items": list(below)}
        return {"Chapter": content}

    sections = ["Separator", chapter("a.md", chapter("book/b.md"))]
    monkeypatch.setattr(sys, "argv", ["book_links.py"])
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps([{}, {"sections": sections}])))
    assert book_links.main() == 0
    outer = json.loads(capsys.readouterr().out)["sections"][1]["Chapter"]
    assert outer["content"] == "x (`README.md`)"
    assert outer["sub_items"][0]["Chapter"]["content"] == "[x](../index.md)"
