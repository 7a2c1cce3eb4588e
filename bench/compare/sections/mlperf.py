"""The workloads of MLPerf Storage: the rows of `bench/mlperf_storage.py`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from compare.row import Contender, Measured, Row, Section
from compare.runner import Run, skipped

TRAINING = ("unet3d", "retinanet")
TEMPERATURES = ("cold", "warm")
COLD = (
    "A cold read of ours goes through MinIO as well, on the same cores, and is written to a disk;"
    " MinIO's CPU time counts for both."
)
CHECKED = "Forebay compares what it sends with checksums, at least every ten seconds; AIStore does not."


def defined() -> Iterator[Row]:
    for name in TRAINING:
        for state in TEMPERATURES:
            title = f"{name}, {state}"
            yield Row(
                f"mlperf/{name}-{state}",
                f"{title}: shortest step at 90 % use of the accelerator",
                "s",
                higher_is_better=False,
                reason=COLD if state == "cold" else "",
            )
            yield Row(
                f"mlperf/{name}-{state}-cpu",
                f"{title}: samples for a CPU second of the servers",
                "samples",
                reason=COLD if state == "cold" else CHECKED,
            )
    for what in ("save", "load"):
        yield Row(f"mlperf/llama3-8b-{what}", f"llama3-8b, state of 8 ranks: {what}", "GB/s")


ROWS = tuple(defined())


def measure(run: Run) -> Iterable[Measured]:
    if "minio" not in run.programs:
        return [skipped(row, run.missing.get("MinIO", "MinIO is not there")) for row in ROWS]
    words = ["--quick"] if run.quick else ["--rounds", str(run.rounds)]
    return list(measured(run.script("mlperf_storage.py", "mlperf_storage.json", *words)))


def measured(results: list[dict[str, Any]]) -> Iterator[Measured]:
    """Rows from those of the script, ours first in each."""
    failed: dict[str, dict[str, str]] = {}
    for one in results:
        if "not_run" in one:
            failed.setdefault(one["row"], {})[one["who"]] = one["not_run"]
    for row in ROWS:
        workload, _, figure = row.id.partition("/")[2].rpartition("-")
        key = "step_s"
        if figure in ("save", "load"):
            script_row, key = f"mlperf {workload} checkpoint", f"{figure}_bytes_per_s"
        elif figure == "cpu":
            workload, _, state = workload.rpartition("-")
            script_row, key = f"mlperf {workload}, {state}", "samples_per_server_cpu_s"
        else:
            script_row = f"mlperf {workload}, {figure}"
        found = [one for one in results if one["row"] == script_row and "not_run" not in one]
        unit = 1e9 if row.unit == "GB/s" else 1.0
        contenders = [
            Contender(
                one["who"], "ours" if one["who"].startswith("Forebay") else "peer",
                one[key] / unit, one[f"{key}_spread"],
            )
            for one in found
        ]  # fmt: skip
        notes = list(map(scale, found[:1]))
        # A peer that failed when it read warm has its cold row.
        names = {one.name for one in contenders}
        left_out = {who: why for who, why in failed.get(f"mlperf {workload}", {}).items() if who not in names}
        yield Measured(row, contenders, left_out, notes)


def scale(one: dict[str, Any]) -> str:
    """The part of the published workload that ran."""
    if "state_divided_by" in one:
        return f"1/{one['state_divided_by']} of the state"
    size = f"samples of 1/{one['sample_bytes_divided_by']} of the size, " if one["sample_bytes_divided_by"] > 1 else ""
    return f"{size}{one['objects']:,} of {one['of_objects']:,} objects, batch {one['batch']}, {one['read_threads']} readers"


SECTION = Section("mlperf", "The workloads of MLPerf Storage", ROWS, measure, minutes=25)
