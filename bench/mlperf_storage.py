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
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measurement
import peers
from feeding import environment
from feeding.reader import Spec
from measurement import Row, judged, not_run, shown, spread
from mlperf import checkpoints, readers
from mlperf.loop import Found, Pass, Trainer, smallest_step
from mlperf.servers import Servers, running
from mlperf.workloads import SEARCHED_UTILIZATION, SOURCE, Scaled, scaled

GOAL_PER_CPU_SECOND = 3.0
TOLERANCE = 0.1
"""A search ends when its two ends differ by less than this part of the lower one."""
AROUND = 1.3
"""A later search begins between the step found so far divided by this and the same step times this."""
WARM_S = 1.5
"""Seconds of a warm pass, in whole epochs."""
WORKLOADS = ("unet3d", "retinanet", "llama3-8b")


class Searches:
    """The searches of one reader at one temperature, one a round."""

    def __init__(self, training: Training, trainer: Trainer, is_cold: bool) -> None:
        self.training, self.trainer, self.is_cold = training, trainer, is_cold
        self.found: list[Found] = []

    def warm_up(self) -> None:
        """A pass that warms what is not to be measured: connections, and the listing."""
        self.measure(0.0)

    def search(self) -> None:
        """One round: from what reading a batch takes, later from what was found."""
        if self.found:
            middle = statistics.median(found.step_s for found in self.found)
            low, high = middle / AROUND, middle * AROUND
        else:
            free = self.measure(0.0)
            low, high = free.wall_s / free.steps / 2, free.wall_s / free.steps * 2
        tolerance = 0.5 if self.training.quick else TOLERANCE
        self.found.append(smallest_step(self.measure, low, high, SEARCHED_UTILIZATION, tolerance))

    def measure(self, step_s: float) -> Pass:
        """A pass over all objects, from MinIO if it is a cold one."""
        training, spec = self.training, self.trainer.spec
        servers = training.servers
        if self.is_cold:
            servers.make_cold(spec.server, training.bucket)
        seconds = 0.0 if self.is_cold else (0.3 if training.quick else WARM_S)
        done = self.trainer.run(step_s, seconds, servers.pids(spec.server))
        if done.bytes != done.epochs * training.epoch_bytes:
            sys.exit(f"error: {spec.name} read {done.bytes} bytes in {done.epochs} epochs")
        return done

    def row(self) -> Row:
        """Medians of the rounds."""
        workload = self.training.workload
        name = self.training.name
        middle = sorted(self.found, key=lambda found: found.step_s)[len(self.found) // 2]
        best = middle.best
        costs = [found.samples_per_server_cpu_s for found in self.found]
        return {
            "row": f"{name}, {'cold' if self.is_cold else 'warm'}",
            "who": self.trainer.spec.name,
            "step_s": middle.step_s,
            "step_s_spread": spread([found.step_s for found in self.found]),
            "utilization": best.utilization,
            "samples_per_s": best.samples / best.wall_s,
            "bytes_per_s": best.bytes / best.wall_s,
            "samples_per_server_cpu_s": statistics.median(costs),
            "samples_per_server_cpu_s_spread": spread(costs),
            **{f"{name}s_fed": step / middle.step_s for name, step in workload.reference_s().items()},
            "sample_bytes_divided_by": workload.divisor,
            "objects": workload.files,
            "of_objects": workload.of.files,
            "batch": workload.of.batch_size,
            "read_threads": workload.of.read_threads,
            "source": f"{SOURCE}: {', '.join(workload.of.sources)}",
        }


class Training:
    """One workload on all servers."""

    def __init__(self, servers: Servers, workload: Scaled, quick: bool, rounds: int) -> None:
        self.servers, self.workload, self.quick = servers, workload, quick
        self.rounds = rounds
        self.name = f"mlperf {workload.of.name}"
        self.bucket = servers.fill(workload)
        self.epoch_bytes = sum(workload.sizes())
        self.trainers: list[Trainer] = []
        self.failed: list[Row] = []

    def rows(self) -> list[Row]:
        """Cold and warm rows of every reader, ours first, and one of each that cannot run."""
        found: list[Row] = []
        try:
            for spec in readers.specs(self.workload.of):
                try:
                    place = {"endpoint": self.servers.endpoint(spec.server), "bucket": self.bucket}
                    self.trainers.append(Trainer(spec, place))
                except RuntimeError as error:
                    self.leave_out(spec, error)
            # Cold first: its last epoch leaves the caches warm.
            for is_cold in (True, False):
                found += self.of_temperature(is_cold)
        finally:
            for trainer in self.trainers:
                trainer.close()
        return [shown(self.beside_ours(row, found)) for row in found] + self.failed

    def of_temperature(self, is_cold: bool) -> list[Row]:
        """Readers search in turns, every other turn backwards, so that a slow minute meets all."""
        searches = [Searches(self, trainer, is_cold) for trainer in self.trainers]
        for one in searches:
            self.attempt(one, one.warm_up)
        for turn in range(self.rounds):
            for one in searches if turn % 2 == 0 else searches[::-1]:
                self.attempt(one, one.search)
        return [one.row() for one in searches if one.trainer in self.trainers]

    def attempt(self, of: Searches, step: Callable[[], None]) -> None:
        """Does a step of a reader; a peer that fails is left out from then on."""
        if of.trainer not in self.trainers:
            return
        try:
            step()
        except RuntimeError as error:
            self.leave_out(of.trainer.spec, error)
            self.trainers.remove(of.trainer)
            of.trainer.close()

    def leave_out(self, spec: Spec, error: RuntimeError) -> None:
        """Notes why a peer was not measured; there is no comparison without our reader."""
        if spec.name == readers.OURS:
            raise error
        self.failed.append(not_run(self.name, spec.name, str(error).strip().splitlines()[-1]))

    def beside_ours(self, row: Row, found: list[Row]) -> Row:
        """The row of a peer with our ratio of samples per server-CPU second.

        The goal is that of warm reads. When reads are cold, MinIO's CPU time counts for every cache,
        which has to read, store and send what MinIO sends.
        """
        if row["who"] == readers.OURS:
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
    rounds = 1 if options.quick else options.rounds
    with tempfile.TemporaryDirectory(dir=options.out) as name:
        with running(options, Path(name).absolute()) as servers:
            for workload in scaled(options.quick):
                if workload.of.name in chosen:
                    found += Training(servers, workload, options.quick, rounds).rows()
            if "llama3-8b" in chosen:
                found += checkpoints.rows(servers, options.quick, rounds)
    return found


def main() -> None:
    parser = measurement.parser(__doc__)
    parser.add_argument("--minio", help="a minio binary", type=measurement.existing)
    parser.add_argument("--aisnode", default=os.environ.get("AISNODE"), help="an aisnode binary")
    parser.add_argument("--only", choices=WORKLOADS, action="append", help="may be repeated")
    parser.add_argument("--rounds", type=int, default=3, help="of each search, and of saving and loading")
    options = parser.parse_args()
    options.aisnode = peers.found(options.aisnode)
    environment.enter()
    measurement.run(options, rows)


if __name__ == "__main__":
    main()
