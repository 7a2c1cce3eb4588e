"""An epoch on paper."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from forebay_torch import DistributedShardSampler, simulate


def source(count: int) -> SimpleNamespace:
    return SimpleNamespace(objects=[(f"{i:05}", i) for i in range(count)])


@pytest.mark.parametrize("policy", ["wrap", "pad", "drop", "none"])
def test_a_simulation_reports_steps_and_bytes_of_each_rank_as_the_sampler_gives_them(
    policy: Any,
) -> None:
    data = source(103)
    report = simulate(data, batch_size=8, world_size=4, seed=5, equal_length=policy)
    for rank in range(4):
        mine = list(
            DistributedShardSampler(
                data.objects, seed=5, rank=rank, world_size=4, equal_length=policy
            )
        )
        assert report.samples_per_rank[rank] == len(mine)
        assert report.bytes_per_rank[rank] == sum(mine)
        assert report.steps[rank] == -(-len(mine) // 8)
    assert (report.repeated, report.left_out) == {"drop": (0, 3), "none": (0, 0)}.get(policy, (1, 0))


def test_a_simulation_reports_how_good_a_shuffle_is() -> None:
    assert simulate(source(2000), batch_size=8, shuffle=False).shuffle_quality == 0
    assert 0.9 < simulate(source(2000), batch_size=8).shuffle_quality < 1.1


def test_numbers_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="batch_size=0"):
        simulate(source(3), batch_size=0)
