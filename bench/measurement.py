"""Options and output that several measurements have in common: `--bin`, `--quick`, `--json`.

A script has a function `rows(options) -> list[Row]`, which another program can call with the options
that `parser` made, and which needs no terminal.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Row = dict[str, Any]
"""One result. `row` names what was measured, `who` the program that was measured; `goal`, `ratio` and
`reached` are there if a goal was set. Times are in s, sizes in bytes."""
Rows = Callable[[argparse.Namespace], list[Row]]
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def parser(about: str | None, load: bool = False) -> argparse.ArgumentParser:
    """Returns a parser with the common options; with `load` also that of the load generator."""
    made = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    made.add_argument("--bin", required=True, type=existing, help="the forebay binary")
    if load:
        made.add_argument("--load", required=True, type=existing, help="the forebay-load binary")
    made.add_argument("--out", type=Path, default=Path("build/bench"), help="folder for all data")
    made.add_argument("--json", type=Path, help="file for the rows, instead of NAME.json in --out")
    made.add_argument("--quick", action="store_true", help="a try: little data, short rounds")
    return made


def existing(name: str) -> str:
    """The absolute path of a program."""
    path = Path(name).absolute()
    if not os.access(path, os.X_OK):
        raise argparse.ArgumentTypeError(f"{name} is no program; build it first")
    return str(path)


def judged(row: Row, ratio: float, goal: float, at_least: bool = True) -> Row:
    """The row with a ratio, and whether it reaches its goal."""
    reached = ratio >= goal if at_least else ratio <= goal
    sign = ">=" if at_least else "<="
    return row | {"ratio": ratio, "goal": f"{sign} {goal:g}", "reached": reached}


def spread(values: list[float]) -> float:
    """How far rounds lie apart: the largest over the smallest."""
    return max(values) / max(min(values), 1e-12)


def not_run(row: str, who: str, why: str) -> Row:
    """A row that was left out, with the reason; it is printed too."""
    print(f"not run: {row}, {who}: {why}", file=sys.stderr)
    return {"row": row, "who": who, "not_run": why}


def shown(row: Row) -> Row:
    """Prints a row as it comes, and returns it."""
    words = [f"{key} {text(value)}" for key, value in row.items() if key not in ("row", "who")]
    print(f"{row['row']}: {row['who']}: {', '.join(words)}", flush=True)
    return row


def text(value: object) -> str:
    """A value as people read it."""
    if isinstance(value, bool) or not isinstance(value, float) or not math.isfinite(value):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def run(options: argparse.Namespace, rows: Rows) -> None:
    """Measures, and writes the rows; servers and their folders go also when this is stopped."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    options.out.mkdir(parents=True, exist_ok=True)
    found = rows(options)
    path = options.json or options.out / f"{Path(sys.argv[0]).stem}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n")
