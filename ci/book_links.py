#!/usr/bin/env python3
"""Preprocessor of mdBook for links that a book cannot have; `book.toml` names it.

A link to a file outside of docs/ becomes its text with the path of the file. A link to a README.md
leads to the index.html that mdBook makes of it. Reads `[context, book]` as JSON, writes the book.
"""

from __future__ import annotations

import json
import posixpath
import re
import sys
from typing import Any

LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
FENCE = re.compile(r"(?ms)^```.*?^```")


def book_text(text: str, page: str) -> str:
    """The text of a page (its path below docs/) with links that work in the book."""

    def link(found: re.Match[str]) -> str:
        words, address = found.groups()
        path, mark, anchor = address.partition("#")
        if ":" in path or not path:
            return found.group()
        place = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), path))
        if not place.startswith("docs/"):
            return words if place in words else f"{words} (`{place}`)"
        if path.endswith("README.md"):
            path = path.removesuffix("README.md") + "index.md"
        return f"[{words}]({path}{mark}{anchor})"

    parts, end = [], 0
    for code in FENCE.finditer(text):
        parts += [LINK.sub(link, text[end : code.start()]), code.group()]
        end = code.end()
    return "".join(parts) + LINK.sub(link, text[end:])


def rewrite(items: list[Any]) -> None:
    for item in items:
        chapter = item.get("Chapter") if isinstance(item, dict) else None
        if chapter:
            page = chapter.get("source_path") or chapter.get("path") or ""
            chapter["content"] = book_text(chapter["content"], page)
            rewrite(chapter["sub_items"])


def main() -> int:
    if sys.argv[1:2] == ["supports"]:
        return 0
    _context, book = json.load(sys.stdin)
    rewrite(book.get("sections") or book.get("items") or [])
    json.dump(book, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
