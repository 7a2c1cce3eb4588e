"""Side by side with the peers that are installed: the workloads of MLPerf Storage.

    python bench/mlperf_storage.py --bin build/dist/forebay --minio MINIO

Training (unet3d, retinanet): the smallest seconds of a step at which an accelerator is used for 90 % of
the time (AU, see mlperf/loop.py), found by bisection, cold and warm. Checkpoints (llama3-8b): bytes a
second, saved and loaded. Cold: the objects are in MinIO alone, and neither in a cache nor in the page
cache. The accelerator sleeps, as in MLPerf Storage. Parameters are in mlperf/workloads.py; each row has
the scale at which it ran. No figure is a result of MLPerf.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import measurement
import peers
from feeding import environment
from feeding.reader import Spec
from measurement import Row, judged, not_run, shown
from mlperf import checkpoints, readers
from mlperf.loop import Found, Pass, Trainer, smallest_step
from mlperf.servers import Servers, running
from mlperf.workloads import SEARCHED_UTILIZATION, SOURCE, Scaled, scaled

GOAL_PER_CPU_SECOND = 3.0
WORKLOADS = ("unet3d", "retinanet", "llama3-8b")


class Training:
    """One workload on all servers."""

    def __init__(self, servers: Servers, workload: Scaled, quick: bool) -> None:
        self.servers, self.workload, self.quick = servers, workload, quick
        self.bucket = servers.fill(workload)
        self.epoch_bytes = sum(workload.sizes())

    def rows(self) -> list[Row]:
        """Cold and warm rows of every reader, ours first."""
        found: list[Row] = []
        for spec in readers.specs(self.workload.of):
            name = f"mlperf {self.workload.of.name}"
            if spec.server == "aistore" and self.servers.aistore is None:
                found.append(not_run(name, spec.name, "AISNODE names no binary"))
                continue
            try:
                found += self.of_reader(spec, name)
            except RuntimeError as error:
                if spec.name == readers.OURS:
                    raise
                found.append(not_run(name, spec.name, str(error).strip().splitlines()[-1]))
        return [shown(self.beside_ours(row, found)) for row in found]

    def of_reader(self, spec: Spec, name: str) -> list[Row]:
        place = {"endpoint": self.servers.endpoint(spec.server), "bucket": self.bucket}
        trainer = Trainer(spec, place)
        try:
            return [
                self.of_temperature(trainer, name, is_cold) for is_cold in (True, False)
            ]  # cold first: its last epoch leaves the caches warm
        finally:
            trainer.close()

    def of_temperature(self, trainer: Trainer, name: str, is_cold: bool) -> Row:
        spec = trainer.spec
        passes: list[Pass] = []
        seconds = 0.0 if is_cold else (0.3 if self.quick else 3.0)

        def measure(step_s: float) -> Pass:
            if is_cold:
                self.servers.make_cold(spec.server, self.bucket)
            done = trainer.run(step_s, seconds, self.servers.pids(spec.server))
            if done.bytes != done.epochs * self.epoch_bytes:
                sys.exit(f"error: {spec.name} read {done.bytes} bytes in {done.epochs} epochs")
            passes.append(done)
            return done

        # Without compute a step takes what reading its batch takes. The first pass warms what is not
        # to be measured: connections, and the listing.
        measure(0.0)
        passes.clear()
        free = measure(0.0)
        tolerance = 0.5 if self.quick else 0.05
        result = smallest_step(measure, free.wall_s / free.steps, SEARCHED_UTILIZATION, tolerance)
        return self.row(f"{name}, {'cold' if is_cold else 'warm'}", spec, result, passes)

    def row(self, name: str, spec: Spec, result: Found, passes: list[Pass]) -> Row:
        cpu_s = sum(done.server_cpu_s for done in passes)
        references = self.workload.reference_s()
        best = result.best
        return {
            "row": name,
            "who": spec.name,
            "step_s": result.step_s,
            "utilization": best.utilization,
            "samples_per_s": best.samples / best.wall_s,
            "bytes_per_s": best.bytes / best.wall_s,
            "samples_per_server_cpu_s": sum(done.samples for done in passes) / max(cpu_s, 0.01),
            **{f"{name}s_fed": step / result.step_s for name, step in references.items()},
            "sample_bytes_divided_by": self.workload.divisor,
            "objects": self.workload.files,
            "of_objects": self.workload.of.files,
            "batch": self.workload.of.batch_size,
            "read_threads": self.workload.of.read_threads,
            "source": f"{SOURCE}: {', '.join(self.workload.of.sources)}",
        }

    def beside_ours(self, row: Row, found: list[Row]) -> Row:
        """The row of a peer with our ratio of samples per server-CPU second.

        The goal is that of warm reads. When reads are cold, MinIO's CPU time counts for every cache,
        which has to read, store and send what MinIO sends.
        """
        if "not_run" in row or row["who"] == readers.OURS:
            return row
        of_row = (r for r in found if r["row"] == row["row"] and r["who"] == readers.OURS)
        ours: dict[str, Any] = next(of_row)
        key = "samples_per_server_cpu_s"
        row["our_step"] = ours["step_s"] / row["step_s"]
        ratio = ours[key] / row[key]
        if row["row"].endswith("cold"):
            return row | {"ratio": ratio}
        return judged(row, ratio, GOAL_PER_CPU_SECOND)


def rows(options: argparse.Namespace) -> list[Row]:
    """All rows; without MinIO, which has the data, only the reason."""
    if not options.minio:
        return [not_run("mlperf", "all", "--minio names no binary")]
    chosen = options.only or WORKLOADS
    found: list[Row] = []
    with tempfile.TemporaryDirectory(dir=options.out) as name:
        with running(options, Path(name).absolute()) as servers:
            for workload in scaled(options.quick):
                if workload.of.name in chosen:
                    found += Training(servers, workload, options.quick).rows()
            if "llama3-8b" in chosen:
                found += checkpoints.rows(servers, options.quick, options.rounds)
    return found


def main() -> None:
    parser = measurement.parser(__doc__)
    parser.add_argument("--minio", help="a minio binary", type=measurement.existing)
    parser.add_argument("--aisnode", default=os.environ.get("AISNODE"), help="an aisnode binary")
    parser.add_argument("--only", choices=WORKLOADS, action="append", help="may be repeated")
    parser.add_argument("--rounds", type=int, default=3, help="of saving and loading")
    options = parser.parse_args()
    options.aisnode = peers.found(options.aisnode)
    environment.enter()
    measurement.run(options, rows)


if __name__ == "__main__":
    main()
