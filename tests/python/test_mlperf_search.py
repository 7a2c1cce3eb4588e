"""The search of `bench/mlperf_storage.py` for the shortest step at which an accelerator is used enough."""

from __future__ import annotations

import sys

import pytest
from conftest import REPOSITORY

sys.path.append(str(REPOSITORY / "bench"))

from mlperf.loop import Pass, smallest_step  # noqa: E402

READ_S = 0.2
"""A reader whose batches take this long: a step of 0.18 s uses the accelerator for 90 % of the time."""


def trained(step_s: float) -> Pass:
    return Pass(steps=10, samples=70, compute_s=10 * step_s, running_s=10 * max(step_s, READ_S), server_cpu_s=0.5)


@pytest.mark.parametrize(
    ("low_s", "high_s"), [(0.1, 0.4), (0.01, 0.02), (1.0, 2.0), (0.18, 0.4), (0.05, 0.18)]
)
def test_the_smallest_step_is_found_from_any_beginning(low_s: float, high_s: float) -> None:
    found = smallest_step(trained, low_s, high_s, utilization=0.9, tolerance=0.05)
    assert 0.18 <= found.step_s <= 0.18 * 1.05
    assert found.best.utilization >= 0.9
    assert found.best.compute_s == pytest.approx(10 * found.step_s)


def test_samples_are_compared_with_the_cpu_time_of_all_passes() -> None:
    found = smallest_step(trained, 0.1, 0.4, utilization=0.9, tolerance=0.05)
    assert found.samples_per_server_cpu_s == pytest.approx(140)


def test_a_search_that_does_not_end_is_an_error() -> None:
    never = Pass(steps=1, compute_s=0.1, running_s=1.0)
    with pytest.raises(RuntimeError, match="did not end"):
        smallest_step(lambda _: never, 0.1, 0.2, utilization=0.9, tolerance=0.05)
