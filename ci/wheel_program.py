#!/usr/bin/env python3
"""Adds a program to a wheel, so that pip installs it as a command: wheel_program.py WHEEL PROGRAM.

maturin takes such files only from a folder that must then be there for every build, those from the
sources too, which have no program. Needs only the standard library.
"""

from __future__ import annotations

import base64
import hashlib
import sys
import zipfile
from pathlib import Path

EXECUTABLE = 0o100755 << 16
EPOCH = (1980, 1, 1, 0, 0, 0)


def add(wheel: Path, program: Path) -> None:
    """Puts the program among the wheel's scripts; one that is there already is replaced."""
    name, version = wheel.name.split("-")[:2]
    script = f"{name}-{version}.data/scripts/{program.name}"
    record = f"{name}-{version}.dist-info/RECORD"
    content = program.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    made = wheel.with_suffix(".new")
    with (
        zipfile.ZipFile(wheel) as old,
        zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new,
    ):
        for member in old.infolist():
            if member.filename not in (script, record):
                new.writestr(member, old.read(member), zipfile.ZIP_DEFLATED)
        lines = old.read(record).decode().splitlines()
        lines = [line for line in lines if not line.startswith(f"{script},")]
        lines.insert(0, f"{script},sha256={digest},{len(content)}")
        entry = zipfile.ZipInfo(script, EPOCH)
        entry.external_attr = EXECUTABLE
        new.writestr(entry, content, zipfile.ZIP_DEFLATED)
        new.writestr(zipfile.ZipInfo(record, EPOCH), "\n".join(lines) + "\n", zipfile.ZIP_DEFLATED)
    made.replace(wheel)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    add(Path(sys.argv[1]), Path(sys.argv[2]))
