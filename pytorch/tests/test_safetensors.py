"""Files of safetensors: those of the format's own library, read by ranges."""

from __future__ import annotations

import json
import struct
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


def test_X18_tensors_of_every_type_are_saved_and_loaded(checkpoint: Checkpoint) -> None:
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


def test_X18_the_formats_own_library_reads_and_writes_the_same(
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


def test_X18_half_of_a_file_costs_less_than_a_tenth_more_than_its_bytes(
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


def test_X18_a_damaged_file_is_told_as_such(
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
