"""Batches of objects and of members of shards: the rows of `bench/batch.py`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import batch
from compare import seeds
from compare.row import Contender, Measured, Row, Section, Side
from compare.runner import Failed, Run, skipped

KEYS = ("1k", "members", "128k")
LOADS = {f"batches/{key}": load.name for key, load in zip(KEYS, batch.LOADS, strict=True)}
ROWS = tuple(
    Row(row_id, name, "items/s", **seeds.BATCHES.get(row_id, {})) for row_id, name in LOADS.items()
)
FIRST_BYTE = Row(
    "batches/first-byte", "first byte of a batch of 10,000 objects of 16 KiB", "ms",
    higher_is_better=False,
)  # fmt: skip
MEMORY = Row(
    "batches/memory", "most memory of the target while 32 batches of 10,000 objects are read", "MiB",
    higher_is_better=False,
)  # fmt: skip


def side(reader: str) -> Side:
    if reader.startswith("roof"):
        return "roof"
    # AIStore's own client on Forebay shows the server's part of the difference.
    return "peer" if "AIStore" in reader.removeprefix(batch.THEIRS) else "ours"


def contender(result: dict[str, Any]) -> Contender:
    return Contender(
        result["reader"].removeprefix("roof: "), side(result["reader"]), result["items_per_s"],
        result["spread"], result["client_us"], result["server_us"],
    )  # fmt: skip


def measure(run: Run) -> Iterable[Measured]:
    # One reading takes milliseconds, so there are more rounds than elsewhere.
    rounds = str(3 * run.rounds)
    quick = ["--quick"] if run.quick else []
    arguments = ["--rounds", rounds, *quick, "--only"]
    result = run.script("batch.py", "batch.json", *arguments, "batch")
    for row in ROWS:
        found = [one for one in result["loads"] if one["load"] == LOADS[row.id]]
        found.sort(key=lambda one: one["reader"] != batch.OURS)
        measured = Measured(row, list(map(contender, found)))
        if "aisnode" not in run.programs:
            measured.skipped["AIStore's client on AIStore"] = "AIStore is not there"
        yield measured
    try:
        long = run.script("batch.py", "batch.json", *arguments, "long")["long"]
    except Failed as error:
        # The other rows of the section stay.
        yield from (skipped(row, str(error)) for row in (FIRST_BYTE, MEMORY))
        return
    yield Measured(FIRST_BYTE, [Contender("Forebay", "ours", long["first_byte_s"] * 1e3)])
    yield Measured(MEMORY, [Contender("Forebay", "ours", long["memory"]["most"] / (1 << 20))])


SECTION = Section(
    "batches", "Batches of objects and members of shards", (*ROWS, FIRST_BYTE, MEMORY), measure,
    minutes=2,
)  # fmt: skip
