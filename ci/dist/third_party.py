#!/usr/bin/env python3
"""Writes the licence texts of everything that is linked into what ships.

    third_party.py [--target TRIPLE] FILE

Each text is printed once, with the list of the crates that it belongs to. A crate that brings no
text gets the standard text of its licence, from licenses/.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from shipped_crates import DEFAULT_TARGET, ROOT, Crate, shipped

STANDARD_TEXTS = Path(__file__).parent / "licenses"
TEXT_NAME = re.compile(r"(?i)^(un)?licen[cs]e|^copying|^copyright|^notice")
# Folders of a crate from which nothing is linked.
NOT_LINKED = {"tests", "benches", "examples"}
RULE = "=" * 100

HEADER = """\
Third-party software in Forebay

The program `forebay`, the container image and the Python package `forebay` contain the software
below, each under its own licence. Forebay itself is licensed under Apache-2.0; see LICENSE.
"""

# Libraries that rustc links in besides crates. Cargo does not list them.
TOOLCHAIN = """\
The Rust standard library, (C) the Rust project contributors: MIT OR Apache-2.0. Both texts are below.

The GNU C library, (C) the Free Software Foundation and others: LGPL-2.1-or-later. The static program
contains it; its text is below. The sources of the C library are those of the distribution that the
program was built on (Debian: `apt-get source glibc`). To link the program with another version of it,
build Forebay from its sources on a machine that has that version: `make shipped`.

The runtime library of GCC (libgcc), (C) the Free Software Foundation: GPL-3.0-or-later WITH
GCC-exception-3.1, which puts no condition on programs that contain it.
"""
TOOLCHAIN_LICENSES = ("MIT", "Apache-2.0", "LGPL-2.1-only")


class NoLicenseText(Exception):
    """A crate has no licence text, and no standard text fits it."""


def standard_text(license_id: str) -> str | None:
    """The standard text of an SPDX licence; None if this repository has none."""
    if license_id == "Apache-2.0":
        return (ROOT / "LICENSE").read_text()
    file = STANDARD_TEXTS / f"{license_id}.txt"
    return file.read_text() if file.is_file() else None


def license_texts(crate: Crate) -> list[str]:
    """The texts that the crate brings along, else a standard text for each part of its licence.

    Raises:
        NoLicenseText: Neither can be had.
    """
    files = {f for f in crate.folder.iterdir() if TEXT_NAME.match(f.name)}
    if crate.license_file:
        files.add(crate.folder / crate.license_file)
    # Sources of others within a crate, mostly C, have their text beside them. A COPYING there is the
    # other one of two licences: that of zstd is GPL-2.0 OR BSD-3-Clause.
    files |= {
        f
        for f in crate.folder.rglob("LICEN[CS]E*")
        if not NOT_LINKED & set(f.relative_to(crate.folder).parts)
    }
    # Sources can have such a name, too: license.rs.
    files = {f for f in files if f.is_file() and f.suffix != ".rs"}
    texts = [f.read_text(errors="replace") for f in sorted(files)]
    if texts:
        return texts
    # Of "A OR B" one text is enough, but of "A AND B" both are needed: take all that are there.
    ids = re.findall(r"[A-Za-z0-9.+-]+", crate.license.replace("/", " "))
    found = [text for name in ids if (text := standard_text(name))]
    if not found or (" AND " in crate.license and len(found) < crate.license.count(" AND ") + 1):
        raise NoLicenseText(f"{crate.id.name} {crate.id.version} ({crate.license or 'no licence'})")
    return found


def document(crates: Iterable[Crate]) -> str:
    """The whole text: which crate has which licence, then each text with the crates it belongs to."""
    crates = list(crates)
    owners: dict[str, list[str]] = {}
    texts: dict[str, str] = {}
    missing = []

    def add(text: str, owner: str) -> None:
        # Line ends and indents may differ between copies of the same text.
        key = " ".join(text.split())
        texts.setdefault(key, "\n".join(line.rstrip() for line in text.strip("\n").splitlines()))
        if owner not in owners.setdefault(key, []):
            owners[key].append(owner)

    for name in TOOLCHAIN_LICENSES:
        text = standard_text(name)
        assert text, f"{STANDARD_TEXTS} has no {name}"
        add(text, "the C library" if name.startswith("LGPL") else "the Rust standard library")
    for crate in crates:
        try:
            for text in license_texts(crate):
                add(text, f"{crate.id.name} {crate.id.version}")
        except NoLicenseText as error:
            missing.append(str(error))
    if missing:
        raise NoLicenseText(f"add a text to {STANDARD_TEXTS} for: {', '.join(missing)}")

    lines = [HEADER, RULE, "Toolchain", RULE, "", TOOLCHAIN, RULE, "Crates", RULE, ""]
    for crate in crates:
        where = crate.repository or f"https://crates.io/crates/{crate.id.name}"
        lines.append(f"{crate.id.name} {crate.id.version}: {crate.license} ({where})")
    for key, text in texts.items():
        lines += ["", RULE, *_wrapped(owners[key]), RULE, "", text]
    return "\n".join(lines) + "\n"


def _wrapped(names: list[str]) -> list[str]:
    """The names, as many in a line as fit."""
    lines = [names[0]]
    for name in names[1:]:
        if len(lines[-1]) + len(name) + 2 > len(RULE):
            lines[-1] += ","
            lines.append(name)
        else:
            lines[-1] += f", {name}"
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--target", default=DEFAULT_TARGET)
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    try:
        text = document(shipped(arguments.target).third_party())
    except NoLicenseText as error:
        print(f"third_party: {error}", file=sys.stderr)
        return 1
    arguments.file.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
