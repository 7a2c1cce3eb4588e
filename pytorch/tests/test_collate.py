"""Batches of bytes as tensors."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import DataLoader

import forebay
from forebay_torch import ByteBatch, MapDataset, collate

SAMPLES = [b"one", b"", b"three"]


def test_a_batch_is_one_block_and_its_views() -> None:
    batch = collate([("a", b"one"), ("b", b""), ("c", b"three")])
    assert isinstance(batch, ByteBatch) and batch.names == ["a", "b", "c"]
    assert [bytes(content.numpy()) for content in batch] == SAMPLES
    assert batch[-1].data_ptr() == batch.data.data_ptr() + 3
    assert batch.lengths.tolist() == [3, 0, 5] and len(batch[0:2]) == 2
    assert len(collate([])) == 0


def test_workers_write_into_shared_memory_and_pin_memory_is_the_types_own(
    bucket: forebay.Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put_many((f"{i}", bytes([i]) * (i + 1)) for i in range(8))
    loader = DataLoader(MapDataset(bucket), batch_size=4, num_workers=2, collate_fn=collate)
    for batch in loader:
        assert batch.data.is_shared()
        for name, content in zip(batch.names, batch, strict=True):
            assert set(content.tolist()) == {int(name)}
    from torch.utils.data._utils.pin_memory import pin_memory

    monkeypatch.setattr(ByteBatch, "pin_memory", lambda self: "pinned")
    assert pin_memory(collate(SAMPLES)) == "pinned"  # type: ignore[no-untyped-call]


def test_padding_gives_rows_and_lengths() -> None:
    rows, lengths = collate(SAMPLES, pad=7)
    assert rows.shape == (3, 5) and lengths.tolist() == [3, 0, 5]
    assert bytes(rows[0].numpy()) == b"one\7\7" and rows[1].tolist() == [7] * 5
    assert torch.equal(collate(SAMPLES).padded(7), rows)


def test_batches_go_to_other_libraries_by_dlpack_and_arrow_without_a_copy() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    batch = collate(SAMPLES)
    shared: Any = numpy.from_dlpack(batch)
    assert shared.ctypes.data == batch.data.data_ptr()
    array = pyarrow.array(batch)
    assert array.to_pylist() == SAMPLES
    assert array.buffers()[2].address == batch.data.data_ptr()


def test_samples_of_another_kind_are_named() -> None:
    with pytest.raises(TypeError, match="int, str"):
        collate(["text", 5])
