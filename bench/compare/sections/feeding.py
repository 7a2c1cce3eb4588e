"""Datasets, loaders and samplers: the rows of `bench/feed.py`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from compare import seeds
from compare.row import Contender, Measured, Row, Section
from compare.runner import Run, by_id
from feeding import data, document_rows, rows

OBJECTS, QUICK_OBJECTS = 300_000, 20_000
"""Of the large bucket."""
SECONDS_OF = {"sampler": 1_000_000, "charades": 10}
SECONDS_OF |= {f"sampler-{count}": count for count in document_rows.SAMPLED}
"""Rows whose value is the seconds for so many items."""
UNITS = {"listing": "names/s", "consumer": "% waiting", "lines": "lines/s", "lines-4": "lines/s"}


def defined() -> Iterator[Row]:
    """The rows of `feeding.rows`, with what the documents say of them."""
    for row in rows.rows(data.all_data(False, OBJECTS)):
        said = seeds.FEEDING.get(row.key, {})
        unit = UNITS.get(row.key, "samples/s")
        if row.key in SECONDS_OF:
            unit = "s"
        better = unit.endswith("/s")
        yield Row(f"feeding/{row.key}", row.title, unit, higher_is_better=better, **said)


def value(row: Row, result: dict[str, Any]) -> float:
    if row.unit == "s":
        return SECONDS_OF[row.id.partition("/")[2]] / float(result["items_per_s"])
    if row.unit == "% waiting":
        return float(result["wait_share"]) * 100
    return float(result["items_per_s"])


def contender(row: Row, result: dict[str, Any]) -> Contender:
    return Contender(
        result["reader"], result["side"], value(row, result), result["spread"],
        result["client_us"], result["server_us"], result["memory"], result["server_memory"],
    )  # fmt: skip


def measure(run: Run) -> Iterable[Measured]:
    objects = QUICK_OBJECTS if run.quick else OBJECTS
    arguments = ["--rounds", str(run.rounds), "--seconds", str(run.seconds), "--no-workers"]
    arguments += ["--objects", str(objects), *(["--quick"] if run.quick else [])]
    known = by_id(ROWS)
    for result in run.script("feed.py", "feed.json", *arguments)["rows"]:
        row = known[f"feeding/{result['key']}"]
        contenders = [contender(row, one) for one in result["readers"]]
        yield Measured(row, contenders, result["skipped"])


ROWS = tuple(defined())
SECTION = Section("feeding", "Feeding a training loop", ROWS, measure, minutes=16)
