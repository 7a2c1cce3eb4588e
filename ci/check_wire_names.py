#!/usr/bin/env python3
"""Holds the names and the order of serialized fields and variants; part of `make check`.

Every Rust type that derives `Serialize` or `Deserialize` travels between nodes or clients, or lies on
a disk, so its names outlive the code. `ci/wire_names.txt` lists them; this script compares them with
the sources. A Rust name may change (with `#[serde(rename)]`), a serialized one only by intent:

    python3 ci/check_wire_names.py --update

Needs only the standard library.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "ci" / "wire_names.txt"
CRATES = (
    "core", "crates/archive", "crates/v1", "crates/s3", "crates/routes", "node", "gateway", "crates/store",
    "crates/clouds", "target", "client", "cli", "sdk",
)  # fmt: skip
DERIVE = re.compile(r"#\[derive\(([^)]*\b(?:Serialize|Deserialize)\b[^)]*)\)\]")
ITEM = re.compile(r"(?:pub(?:\([^)]*\))?\s+)?(struct|enum)\s+(\w+)[^{;(]*([{;(])")
ATTRIBUTE = re.compile(r"#\[")
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
OPENING, CLOSING = "([{<", ")]}>"


def without_comments(text: str) -> str:
    """The source without `//` comments; strings stay."""
    return re.sub(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*', lambda found: found[1] or "", text)


def block(text: str, start: int) -> str:
    """Returns the text between the bracket at `start` and the one that closes it."""
    depth, opening = 0, text[start]
    closing = CLOSING[OPENING.index(opening)]
    position = start
    while position < len(text):
        if text[position] == '"':
            position = STRING.match(text, position).end()  # type: ignore[union-attr]
            continue
        if text[position] == opening:
            depth += 1
        elif text[position] == closing:
            depth -= 1
            if depth == 0:
                return text[start + 1 : position]
        position += 1
    raise ValueError(f"no closing {closing}")


def attributes(text: str, position: int) -> tuple[str, int]:
    """All serde attributes from `position` on, joined, and where they end."""
    joined = []
    while True:
        position += len(text[position:]) - len(text[position:].lstrip())
        if not ATTRIBUTE.match(text, position):
            return ",".join(joined), position
        body = block(text, position + 1)
        if body.startswith("serde"):
            joined.append(body[body.index("(") + 1 : body.rindex(")")])
        position += len(body) + 3


def split(text: str) -> list[str]:
    """The parts of a list of fields or variants."""
    parts, depth, begin, position = [], 0, 0, 0
    while position < len(text):
        char = text[position]
        if char == '"':
            position = STRING.match(text, position).end()  # type: ignore[union-attr]
            continue
        if char in OPENING:
            depth += 1
        elif char in CLOSING and text[position - 1] not in "-=":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[begin:position])
            begin = position + 1
        position += 1
    return [part for part in [*parts, text[begin:]] if part.strip()]


def words(name: str) -> list[str]:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_")


def cased(name: str, rule: str | None) -> str:
    """A field's or variant's name by a `rename_all` rule."""
    parts = words(name)
    return {
        None: name,
        "lowercase": name.lower(),
        "UPPERCASE": name.upper(),
        "snake_case": "_".join(parts),
        "SCREAMING_SNAKE_CASE": "_".join(parts).upper(),
        "kebab-case": "-".join(parts),
        "camelCase": parts[0] + "".join(p.capitalize() for p in parts[1:]),
        "PascalCase": "".join(p.capitalize() for p in parts),
    }[rule]


def setting(serde: str, key: str) -> str | None:
    found = re.search(rf'(?:^|[,(\s]){key}\s*=\s*"([^"]*)"', serde)
    return found[1] if found else None


def member(part: str, rule: str | None) -> str:
    """The serialized name of one field or variant, with what else decides about its form."""
    serde, position = attributes(part, 0)
    rest = re.sub(r"^pub(\([^)]*\))?\s+", "", part[position:].strip())
    if re.search(r"(?:^|[,\s])skip(?:$|[,\s])", serde):
        return "(skipped)"
    name = re.match(r"(?:r#)?(\w+)\s*(:|$|[({=])", rest)
    if name is None:
        return re.sub(r"\s+", "", rest) if rest[:1].islower() else "(value)"
    shown = setting(serde, "rename") or cased(name[1], rule)
    aliases = re.findall(r'alias\s*=\s*"([^"]*)"', serde)
    shown += "".join(f"|{alias}" for alias in sorted(aliases))
    if re.search(r"(?:^|[,\s])flatten", serde):
        shown = f"(flattened {shown})" if aliases else "(flattened)"
    if name[2] == "{":
        inner = setting(serde, "rename_all") or None
        fields = split(block(rest, rest.index("{")))
        shown += "{" + " ".join(member(field, inner) for field in fields) + "}"
    return shown


def types(root: Path) -> list[tuple[str, str]]:
    """Each serialized type as `crate::Name` with its names in order."""
    found = []
    for crate in CRATES:
        for path in sorted((root / crate / "src").rglob("*.rs")):
            text = without_comments(path.read_text(encoding="utf-8"))
            for derive in DERIVE.finditer(text):
                serde, position = attributes(text, derive.end())
                if not (item := ITEM.match(text, position)):
                    continue
                kind, name, opening = item.groups()
                members = []
                if opening != ";":
                    rule = setting(serde, "rename_all")
                    members = [member(p, rule) for p in split(block(text, item.end() - 1))]
                    if kind == "struct" and opening == "(":
                        members = [f"({len(members)} values)"]
                extra = [f"{k}={v}" for k in ("tag", "content", "rename_all_fields") if (v := setting(serde, k))]
                extra += [k for k in ("untagged", "transparent") if re.search(rf"\b{k}\b", serde)]
                found.append((f"{Path(crate).name}::{name}", " ".join([kind, *extra, *members])))
    return sorted(found)


def main() -> int:
    now = types(ROOT)
    if "--update" in sys.argv[1:]:
        LIST.write_text("".join(f"{name}: {names}\n" for name, names in now), encoding="utf-8")
        return 0
    listed = [tuple(line.split(": ", 1)) for line in LIST.read_text(encoding="utf-8").splitlines()]
    # By what is serialized, whatever the Rust name of the type.
    gone = Counter(names for _, names in listed) - Counter(names for _, names in now)
    new = Counter(names for _, names in now) - Counter(names for _, names in listed)
    for sign, pairs, counts in (("-", listed, gone), ("+", now, new)):
        for name, names in pairs:
            if names in counts:
                print(f"{sign} {name}: {names}")
    if gone or new:
        print(
            "check_wire_names: serialized names changed. Keep them with #[serde(rename = ...)]; if the change is "
            "meant, and older nodes and files are taken care of, run it with --update",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
