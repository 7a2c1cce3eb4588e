#!/usr/bin/env python3
"""Writes the table of settings in the chart's README from the comments of its values.yaml.

`--check` changes nothing and fails when the table is not up to date. Needs only the standard
library: of YAML it knows what values.yaml uses, which is comments, indented keys and lists.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

CHART = Path(__file__).resolve().parent.parent / "deploy/helm/forebay"
BEGIN, END = "<!-- settings: made by ci/chart_readme.py -->", "<!-- end of settings -->"
KEY = re.compile(r"^( *)([A-Za-z0-9]+):(?: (.*))?$")


@dataclass
class Setting:
    """One documented setting: its path, what values.yaml gives it, and its comment."""

    path: str
    doc: str
    value: str = ""
    lines: list[str] = field(default_factory=list)

    def default(self) -> str:
        """The value in one line; a structure as what it is made of."""
        if self.value:
            return self.value
        parts = (re.sub(r"\s+", " ", line).strip() for line in self.lines)
        return "; ".join(part for part in parts if part).replace(":; ", ": ")


def settings(text: str) -> Iterator[Setting]:
    """Settings in the order of the file: keys that have a `# --` comment above them."""
    path: list[tuple[int, str]] = []
    doc: list[str] = []
    open_setting: Setting | None = None
    depth = -1
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        if open_setting and line.strip() and indent > depth and not line.lstrip().startswith("# --"):
            open_setting.lines.append(line)
            continue
        if open_setting:
            yield open_setting
            open_setting = None
        if line.lstrip().startswith("# -- "):
            doc = [line.lstrip()[5:]]
        elif line.lstrip().startswith("# ") and doc:
            doc.append(line.lstrip()[2:])
        elif found := KEY.match(line):
            path = [(i, name) for i, name in path if i < indent] + [(indent, found[2])]
            if doc:
                dotted = ".".join(name for _, name in path)
                open_setting = Setting(dotted, " ".join(doc), found[3] or "")
                depth = indent
            doc = []
        else:
            doc = []
    if open_setting:
        yield open_setting


def undocumented(text: str) -> list[str]:
    """Keys with a value and no comment, and not inside a documented one."""
    known = [s.path for s in settings(text)]
    path: list[tuple[int, str]] = []
    missing = []
    for line in text.splitlines():
        if found := KEY.match(line):
            indent = len(found[1])
            path = [(i, name) for i, name in path if i < indent] + [(indent, found[2])]
            dotted = ".".join(name for _, name in path)
            covered = any(dotted == k or dotted.startswith(f"{k}.") for k in known)
            if found[3] is not None and not covered:
                missing.append(dotted)
    return missing


def table(text: str) -> str:
    rows = ["| setting | default | what |", "|---|---|---|"]
    for s in settings(text):
        default = s.default().replace("|", "\\|")
        what = s.doc.replace("|", "\\|")
        rows.append(f"| `{s.path}` | `{default}` | {what} |")
    return "\n".join(rows)


def main() -> int:
    values = (CHART / "values.yaml").read_text(encoding="utf-8")
    if missing := undocumented(values):
        print(f"chart_readme: no `# --` comment in values.yaml: {json.dumps(missing)}", file=sys.stderr)
        return 1
    readme = CHART / "README.md"
    text = readme.read_text(encoding="utf-8")
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        print(f"chart_readme: {readme} lacks the marks {BEGIN} and {END}", file=sys.stderr)
        return 1
    new = f"{head}{BEGIN}\n{table(values)}\n{END}{tail}"
    if new == text:
        return 0
    if "--check" in sys.argv[1:]:
        print("chart_readme: the table is out of date; run python3 ci/chart_readme.py", file=sys.stderr)
        return 1
    readme.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
