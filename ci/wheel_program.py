#!/usr/bin/env python3
"""Adds a program to a wheel, so that pip installs it as a command, and licence texts.

    wheel_program.py WHEEL PROGRAM [LICENSE_TEXT]...

maturin takes such files only from a folder that must then be there for every build, those from the
sources too, which have no program. Needs only the standard library.
"""

from __future__ import annotations

import base64
import hashlib
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

EXECUTABLE = 0o100755 << 16
PLAIN = 0o100644 << 16
EPOCH = (1980, 1, 1, 0, 0, 0)
PROGRAM_NAME = "forebay"


def add(wheel: Path, program: Path, licenses: Iterable[Path] = ()) -> None:
    """Puts the program among the wheel's scripts and the texts among its licences (PEP 639). Those of
    the same name that are there already are replaced."""
    name, version = wheel.name.split("-")[:2]
    info = f"{name}-{version}.dist-info"
    record = f"{info}/RECORD"
    texts = {text.name: text.read_bytes() for text in licenses}
    # Path, content and mode of what is new.
    script = f"{name}-{version}.data/scripts/{PROGRAM_NAME}"
    added = {script: (program.read_bytes(), EXECUTABLE)}
    added |= {f"{info}/licenses/{key}": (text, PLAIN) for key, text in texts.items()}
    made = wheel.with_suffix(".new")
    with (
        zipfile.ZipFile(wheel) as old,
        zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new,
    ):
        metadata = old.read(f"{info}/METADATA").decode()
        added[f"{info}/METADATA"] = (_with_licenses(metadata, texts).encode(), PLAIN)
        for member in old.infolist():
            if member.filename not in added and member.filename != record:
                new.writestr(member, old.read(member), zipfile.ZIP_DEFLATED)
        lines = old.read(record).decode().splitlines()
        lines = [line for line in lines if line.rsplit(",", 2)[0] not in added]
        for path, (content, mode) in added.items():
            entry = zipfile.ZipInfo(path, EPOCH)
            entry.external_attr = mode
            new.writestr(entry, content, zipfile.ZIP_DEFLATED)
            digest = (
                base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            )
            lines.insert(0, f"{path},sha256={digest},{len(content)}")
        new.writestr(zipfile.ZipInfo(record, EPOCH), "\n".join(lines) + "\n", zipfile.ZIP_DEFLATED)
    made.replace(wheel)


def _with_licenses(metadata: str, names: Iterable[str]) -> str:
    """The metadata with a License-File field for each name."""
    fields, blank, description = metadata.partition("\n\n")
    lines = fields.rstrip("\n").split("\n")
    wanted = [f"License-File: {name}" for name in names]
    lines += [line for line in wanted if line not in lines]
    return "\n".join(lines) + (blank + description if blank else "\n")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    add(Path(sys.argv[1]), Path(sys.argv[2]), [Path(text) for text in sys.argv[3:]])
