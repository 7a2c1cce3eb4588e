#!/usr/bin/env python3
"""bench/faults.py FOLDER: prints what `make faults` measured, as a table for each row of faults.

Each row leaves a JSON file there (tests/src/figures.rs). All files together go to FOLDER/all.json.
Needs only the standard library.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def read(folder: Path) -> list[dict]:
    """The rows that were run, by number."""
    rows = [json.loads(path.read_text()) for path in folder.glob("[0-9]*.json")]
    return sorted(rows, key=lambda row: (int(row["row"].split()[0]), row["row"]))


def table(rows: list[dict]) -> str:
    lines = ["| row | figure | value |", "|---|---|---|"]
    for row in rows:
        name = row["row"]
        for figure, value in row["figures"].items():
            number = isinstance(value, float)
            shown = f"{value:.3f}".rstrip("0").rstrip(".") if number else str(value)
            lines.append(f"| {name} | {figure} | {shown} |")
            name = ""
    return "\n".join(lines)


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/faults")
    rows = read(folder) if folder.is_dir() else []
    if not rows:
        print(f"no figures in {folder}: run `make faults` as root")
        return 1
    (folder / "all.json").write_text(json.dumps(rows, indent=1) + "\n")
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
