"""Memory of batches that is used again, and never too early."""

from __future__ import annotations

import gc
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import default_collate

from forebay_torch.batch_memory import BatchMemory

SHAPE = (3, 100, 400)


def sample(value: int) -> torch.Tensor:
    return torch.full(SHAPE, value, dtype=torch.float32)


def batch(memory: BatchMemory, value: int) -> Any:
    return memory.collate([sample(value), sample(value + 1), sample(value + 2)])


def test_a_batch_lies_where_one_lay_that_nobody_has_any_more() -> None:
    memory = BatchMemory()
    first = batch(memory, 1)
    place = first.data_ptr()
    second = batch(memory, 5)
    assert second.data_ptr() != place
    del first
    third = batch(memory, 9)
    assert third.data_ptr() == place
    assert [int(one[0, 0, 0]) for one in third] == [9, 10, 11]


@pytest.mark.parametrize(
    "keep",
    [
        lambda made: made[1],
        lambda made: made.view(-1)[7:9],
        lambda made: made.numpy()[0],
        lambda made: made.untyped_storage(),
        lambda made: numpy.asarray(made)[:, 0],
        lambda made: made.detach().permute(0, 2, 3, 1),
    ],
)
def test_what_is_kept_of_a_batch_keeps_its_memory(keep: Any) -> None:
    memory = BatchMemory()
    made = batch(memory, 1)
    place, kept = made.data_ptr(), keep(made)
    del made
    gc.collect()
    for value in range(10, 14):
        assert batch(memory, value).data_ptr() != place
    del kept


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 200), st.booleans()), min_size=1, max_size=12))
def test_a_batch_is_what_torch_makes_of_its_samples_as_long_as_it_lives(
    steps: list[tuple[int, bool]],
) -> None:
    memory = BatchMemory()
    kept: list[tuple[Any, Any]] = []
    for value, stays in steps:
        samples = [{"x": sample(value), "y": (value, "name")} for _ in range(2 + value % 3)]
        kept.append((memory.collate(samples), default_collate(samples)))
        if not stays:
            kept.pop(0)
        for made, wanted in kept:
            assert torch.equal(made["x"], wanted["x"]) and made["x"].is_contiguous()
            assert made["y"][1] == wanted["y"][1] and torch.equal(made["y"][0], wanted["y"][0])


def test_what_is_small_or_differs_is_left_to_torch() -> None:
    memory = BatchMemory()
    small = memory.collate([torch.zeros(10), torch.ones(10)])
    assert small.shape == (2, 10)
    large = [torch.zeros(1 << 20, requires_grad=True), torch.ones(1 << 20)]
    assert memory.collate(large).requires_grad
    with pytest.raises(RuntimeError, match="equal size"):
        memory.collate([torch.zeros(1 << 20), torch.zeros(1 << 21)])
    arrays = [numpy.full(1 << 20, n, dtype=numpy.uint8) for n in range(2)]
    assert memory.collate(arrays)[1].tolist()[:2] == [1, 1]


def test_a_torch_that_keeps_no_more_than_the_bytes_themselves_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = torch.frombuffer
    # The mapping stays, and the object that reports its last reference does not.
    monkeypatch.setattr(torch, "frombuffer", lambda view, **how: made(view.obj, **how))
    memory = BatchMemory()
    batches = [batch(memory, value) for value in (1, 5, 9)]
    assert len({one.data_ptr() for one in batches}) == 3
    assert [int(one[0, 0, 0, 0]) for one in batches] == [1, 5, 9]
