"""Checkpoints saved and loaded: the rows of `bench/checkpoint.py`."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from typing import Any

import checkpoint
from compare import seeds
from compare.row import Contender, Measured, Row, Section
from compare.runner import Run, skipped

MB = 1_000_000
LARGEST = max(checkpoint.SIZES)
QUICK_MB = 76
NEEDED = {"memory": 3, "disk": 4}
"""Free memory and disk that a state needs, in multiples of its size: copies, roofs and all servers."""


def key(size: int, what: str) -> str:
    return f"checkpoints/{what}-{round(size / MB)}"


def defined(size: int, what: str) -> Row:
    said = seeds.CHECKPOINTS.get((size, what), {})
    return Row(key(size, what), f"checkpoint of {size / MB:,.0f} MB: {what}", "MB/s", **said)


def most_mb(run: Run) -> tuple[int, str]:
    """The largest state in MB that this machine takes, and why it is not the largest of all."""
    if run.quick:
        return QUICK_MB, "left out by --quick"
    free = {"disk": shutil.disk_usage(run.out).free, "memory": available_memory()}
    for place, factor in NEEDED.items():
        if free[place] < factor * LARGEST:
            have, need = free[place] / 1e9, factor * LARGEST / 1e9
            return 2_500, f"{have:,.0f} GB of {place} are free, and it needs {need:,.0f}"
    return round(LARGEST / MB), ""


def available_memory() -> int:
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))


def contender(state: dict[str, Any], what: str) -> Contender:
    name = state["way"]
    side = "roof" if name.startswith("roof") else "ours" if name.startswith("Forebay") else "peer"
    megabytes = state["bytes"] / MB
    spent = [state[f"{what}_{of}_s"] for of in ("client", "server")]
    # CPU time per MB.
    client, server = (None if one is None else one * 1e6 / megabytes for one in spent)
    return Contender(
        name, side, state[f"{what}_bytes_per_s"] / MB, state[f"{what}_spread"], client, server,
        None, state["server_memory"],
    )  # fmt: skip


def measure(run: Run) -> Iterable[Measured]:
    most, why = most_mb(run)
    rounds = str(run.rounds)
    result = run.script("checkpoint.py", "checkpoint.json", "--most", str(most), "--rounds", rounds)
    for size in checkpoint.SIZES:
        # The native bucket is compared: it is what a job has that saves to the cluster.
        states = [state for state in result["states"] if state["size"] == size]
        states.sort(key=lambda state: state["way"] != checkpoint.OURS)
        for what in ("save", "load"):
            row = defined(size, what)
            if not states:
                yield skipped(row, why)
                continue
            measured = Measured(row, [contender(state, what) for state in states])
            if "minio" not in run.programs:
                measured.skipped["s3fs, s3torchconnector"] = "MinIO is not there"
            yield measured
    grown = result["growth"]["grown"] / (1 << 20)
    yield Measured(MEMORY, [Contender("Forebay", "ours", grown)])
    steps = result["steps"]
    yield Measured(STEPS, [Contender("Forebay", "ours", steps["busy_s"] / steps["quiet_s"])])


MEMORY = Row("checkpoints/memory", "memory that saving 1 GiB adds", "MiB", higher_is_better=False)
STEPS = Row(
    "checkpoints/steps", "a step of training while save_async is at work, against a quiet one", "×",
    higher_is_better=False,
)  # fmt: skip
ROWS = tuple(defined(size, what) for size in checkpoint.SIZES for what in ("save", "load"))
SECTION = Section("checkpoints", "Checkpoints", (*ROWS, MEMORY, STEPS), measure, minutes=8)
