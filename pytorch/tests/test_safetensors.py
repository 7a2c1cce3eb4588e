"""Files of safetensors: those of the format's own library, read by ranges."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

import forebay
from forebay_torch import Checkpoint, TensorFile, save_tensors
from forebay_torch.checkpoint.safetensors import _DTYPES

STATE = {
    **{name: (torch.arange(24) % 2).to(dtype).reshape(2, 3, 4) for name, dtype in _DTYPES.items()},
    "turned": torch.arange(12.0).reshape(3, 4).T,
    "number": torch.tensor(7),
    "empty": torch.empty(0, 5),
}


@pytest.fixture
def checkpoint(bucket: forebay.Bucket) -> Checkpoint:
    return Checkpoint(bucket_name=bucket.uri, storage_client=bucket.client)


def is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    flat = [t.contiguous().reshape(-1).view(torch.uint8) for t in (one, other)]
    return torch.equal(*flat)


def test_tensors_of_every_type_are_saved_and_loaded(checkpoint: Checkpoint) -> None:
    uri = save_tensors(checkpoint, STATE, "a.safetensors", {"format": "pt"})
    file = TensorFile(checkpoint, uri)
    assert file.metadata == {"format": "pt"} and len(file) == len(STATE)
    assert set(file) == set(STATE) and "number" in file and "none" not in file
    loaded = file.get_many()
    assert all(is_same(loaded[name], STATE[name]) for name in STATE)
    assert is_same(file["turned"], STATE["turned"])
    assert (file.shape("BF16"), file.dtype("BF16")) == ((2, 3, 4), torch.bfloat16)
    with pytest.raises(KeyError):
        file["none"]
    with pytest.raises(TypeError, match="'sparse' is"):
        save_tensors(checkpoint, {"sparse": torch.eye(3).to_sparse()}, "b")
    with pytest.raises(TypeError, match="texts"):
        save_tensors(checkpoint, {}, "b", {"step": 7})  # type: ignore[dict-item]
    assert checkpoint.latest() == "a.safetensors"


def test_the_formats_own_library_reads_and_writes_the_same(
    checkpoint: Checkpoint, bucket: forebay.Bucket
) -> None:
    theirs: Any = pytest.importorskip("safetensors.torch", reason="see ci/lightning.sh")
    save_tensors(checkpoint, STATE, "ours", {"format": "pt"})
    loaded = theirs.load(bucket.object("ours").get().read_all())
    assert all(is_same(loaded[name], STATE[name]) for name in STATE)
    plain = {name: tensor.contiguous() for name, tensor in STATE.items()}
    bucket.object("theirs").put(theirs.save(plain, {"format": "pt"}))
    file = TensorFile(checkpoint, "theirs")
    assert file.metadata == {"format": "pt"}
    assert all(is_same(tensor, STATE[name]) for name, tensor in file.get_many().items())


def test_half_of_a_file_costs_less_than_a_tenth_more_than_its_bytes(
    checkpoint: Checkpoint, cluster: Any
) -> None:
    model = {f"{i:02}": torch.full((100_000 + 77 * i,), float(i)) for i in range(40)}
    save_tensors(checkpoint, model, "m")
    file = TensorFile(checkpoint, "m")
    wanted = [f"{i:02}" for i in range(0, 40, 2)]
    before = cluster.count("forebay_get_bytes_total")
    loaded = file.get_many(wanted)
    read = cluster.count("forebay_get_bytes_total") - before
    assert all(torch.equal(loaded[name], model[name]) for name in wanted)
    useful = sum(tensor.nbytes for tensor in loaded.values())
    assert useful <= read < 1.1 * useful


def test_a_damaged_file_is_refused(
    checkpoint: Checkpoint, bucket: forebay.Bucket
) -> None:
    def damaged(content: bytes, why: str) -> None:
        bucket.object("bad").put(content)
        with pytest.raises(forebay.InvalidArgument, match=why):
            TensorFile(checkpoint, "bad")

    def with_header(header: Any, data: bytes = bytes(8)) -> bytes:
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + data

    good = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    bucket.object("good").put(with_header({"w": good}))
    assert TensorFile(checkpoint, "good")["w"].tolist() == [0, 0]
    damaged(b"short", "it has 5 bytes")
    damaged(b"\xff" * 20, "its header would have")
    damaged(struct.pack("<Q", 4) + b"{no}", "no JSON")
    damaged(with_header([1]), "no object")
    damaged(with_header({"w": good}, bytes(7)), "'w' is damaged")
    damaged(with_header({"w": good | {"shape": [3]}}), "'w' is damaged")
    damaged(with_header({"w": good | {"shape": [-2]}}), "'w' is damaged")
    damaged(with_header({"w": good | {"dtype": "F1"}}), "'w' is damaged")
    with pytest.raises(forebay.NotFound):
        TensorFile(checkpoint, "none")


INDICES: list[Any] = [
    5, -1, slice(None), slice(2, 9), slice(-3, None), slice(1, 50, 7), slice(9, 2), [7, 0, 7, -2],
    (3, 4), (slice(2, 9), slice(1, 3)), (slice(0, 20, 5), 4), (-1, slice(None), 1), ..., (..., 1), None,
    (slice(4), None), torch.tensor([3, 1]), [], torch.arange(60) % 3 == 0,
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool])
def test_an_index_of_a_slice_gives_what_torch_gives_of_the_whole(
    checkpoint: Checkpoint, index: Any, dtype: torch.dtype
) -> None:
    whole = (torch.arange(60 * 5 * 3) % 100).to(dtype).reshape(60, 5, 3)
    save_tensors(checkpoint, {"a": torch.ones(3, dtype=torch.uint8), "w": whole}, "s")
    part = TensorFile(checkpoint, "s").get_slice("w")
    assert (part.get_shape(), len(part), part.dtype) == ([60, 5, 3], 60, dtype)
    assert is_same(part[index], whole[index])


def test_rows_of_a_tensor_cost_their_own_bytes(checkpoint: Checkpoint, cluster: Any) -> None:
    table = torch.arange(50_000 * 64, dtype=torch.float32).reshape(50_000, 64)
    save_tensors(checkpoint, {"head": torch.ones(1000), "table": table}, "m")
    rows = TensorFile(checkpoint, "m").get_slice("table")
    for index, wanted in [(slice(20_000, 30_000), 10_000), (7, 1), ([9, 40_000, 10], 3), (slice(5, 5), 0)]:
        before = cluster.count("forebay_get_bytes_total")
        found = rows[index]
        read = cluster.count("forebay_get_bytes_total") - before
        assert torch.equal(found, table[index])
        assert 256 * wanted <= read <= 256 * wanted * 1.08
    with pytest.raises(IndexError, match="row 50000"):
        rows[50_000]
    with pytest.raises(ValueError, match="step"):
        rows[::-1]
    with pytest.raises(KeyError):
        TensorFile(checkpoint, "m").get_slice("none")


def test_slices_are_those_of_the_formats_own_library(
    checkpoint: Checkpoint, bucket: forebay.Bucket, tmp_path: Path
) -> None:
    theirs: Any = pytest.importorskip("safetensors", reason="see ci/lightning.sh")
    whole = torch.arange(600.0).reshape(60, 10)
    save_tensors(checkpoint, {"w": whole, "number": torch.tensor(7)}, "s")
    (tmp_path / "s").write_bytes(bucket.object("s").get().read_all())
    with theirs.safe_open(tmp_path / "s", "pt") as file:
        for name, indices in {"w": [slice(3, 9), (slice(2, 4), slice(1, 5)), 4], "number": [...]}.items():
            mine, other = TensorFile(checkpoint, "s").get_slice(name), file.get_slice(name)
            assert mine.get_shape() == other.get_shape()
            assert all(is_same(mine[index], other[index]) for index in indices)


@pytest.mark.parametrize("content", ["as long", "shorter"])
def test_a_file_that_is_replaced_after_it_was_opened_is_an_error_and_never_mixed(
    checkpoint: Checkpoint, bucket: forebay.Bucket, content: str
) -> None:
    model = {"large": torch.ones(2 << 20), "small": torch.ones(9, 9)}
    save_tensors(checkpoint, model, "m")
    file = TensorFile(checkpoint, "m")
    size = bucket.object("m").head().size
    bucket.object("m").put(bytes(size if content == "as long" else 10))
    for read in (lambda: file["large"], lambda: file["small"], lambda: file.get_slice("small")[3]):
        with pytest.raises(forebay.ObjectChanged, match="/m"):
            read()
