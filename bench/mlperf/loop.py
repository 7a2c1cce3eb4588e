"""A training loop in a process of its own, whose accelerator is a sleep; and the search over that.

Accelerator utilization (AU) is that of the rules of MLPerf Storage (github.com/mlcommons/storage,
Submission_guidelines.md, "Training Workloads" under "Performance Metrics"):

    AU = total_compute_time / total_benchmark_running_time
    total_compute_time = records_per_file * total_files / simulated_accelerators / batch_size
                         * computation_time * epochs

"All the I/O operations from the first step are excluded from the AU calculation", and are included in
samples per second. So here, with one accelerator, of an epoch of N steps:

    AU = N * computation_time / (end of the epoch - arrival of its first batch)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from feeding.reader import Epoch, Spec, Worker, cpu_s

MOST_PASSES = 30
"""A search that has not ended by then does not end."""


@dataclass
class Pass:
    """Figures of one pass of whole epochs.

    Attributes:
        running_s: Seconds by which AU is defined: of all epochs, each from its first batch.
        wall_s: Seconds in all, for samples per second.
        server_cpu_s: CPU seconds of the servers meanwhile.
    """

    steps: int = 0
    samples: int = 0
    bytes: int = 0
    epochs: int = 0
    compute_s: float = 0.0
    running_s: float = 0.0
    wall_s: float = 0.0
    server_cpu_s: float = 0.0

    @property
    def utilization(self) -> float:
        """AU, from 0 to 1."""
        return min(1.0, self.compute_s / self.running_s) if self.running_s else 0.0


class Trainer(Worker):
    """A reader's process; it lives for all passes, as its workers do."""

    def __init__(self, spec: Spec, place: dict[str, Any]) -> None:
        super().__init__(spec, place, train)

    def run(self, step_s: float, seconds: float, servers: list[int]) -> Pass:
        """Trains whole epochs for at least so many seconds, at least one; a step computes `step_s`."""
        before = sum(map(cpu_s, servers))
        done: Pass = self._ask(step_s, seconds)
        done.server_cpu_s = sum(map(cpu_s, servers)) - before
        return done


def train(epoch: Epoch, step_s: float, seconds: float) -> Pass:
    """Whole epochs; the accelerator sleeps `step_s` for each batch."""
    done = Pass()
    started = time.perf_counter()
    while not done.epochs or time.perf_counter() - started < seconds:
        first = 0.0
        steps = done.steps
        for samples, size in epoch():
            first = first or time.perf_counter()
            done.steps += 1
            done.samples += samples
            done.bytes += size
            if step_s:
                time.sleep(step_s)
        if done.steps == steps:
            raise RuntimeError("an epoch has no samples")
        done.running_s += time.perf_counter() - first
        done.epochs += 1
    done.compute_s = done.steps * step_s
    done.wall_s = time.perf_counter() - started
    return done


@dataclass(frozen=True)
class Found:
    """The smallest step, the pass with it, and all passes of the search."""

    step_s: float
    best: Pass
    passes: list[Pass]

    @property
    def samples_per_server_cpu_s(self) -> float:
        """Of all passes: CPU time is counted in ticks, too coarse for one short pass."""
        spent = sum(done.server_cpu_s for done in self.passes)
        return sum(done.samples for done in self.passes) / max(spent, 0.01)


def smallest_step(
    measure: Callable[[float], Pass], low_s: float, high_s: float, utilization: float, tolerance: float
) -> Found:
    """Returns the smallest seconds of a step with at least this AU, found by bisection.

    The search begins between `low_s` and `high_s`, and moves an end outwards until the step is between
    them. It ends when both ends differ by less than `tolerance` of the lower one.
    """
    passes: list[Pass] = []

    def at(step_s: float) -> Pass:
        passes.append(measure(step_s))
        if len(passes) > MOST_PASSES:
            raise RuntimeError(f"the search for an AU of {utilization:.0%} came to {step_s:.2g} s and did not end")
        return passes[-1]

    low, high, is_too_short = low_s, high_s, False
    while (best := at(high)).utilization < utilization:
        low, high, is_too_short = high, high * 2, True
    while not is_too_short and (done := at(low)).utilization >= utilization:
        low, high, best = low / 2, low, done
    while (high - low) / low > tolerance:
        middle = (low + high) / 2
        done = at(middle)
        if done.utilization >= utilization:
            high, best = middle, done
        else:
            low = middle
    return Found(high, best, passes)
