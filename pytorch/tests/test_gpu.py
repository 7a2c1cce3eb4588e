"""Batches and checkpoints on a GPU: no sample is lost, repeated or altered on its way there and back."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from gpu_device import DEVICE, gpu
from torch.utils.data import DataLoader

import forebay
from forebay_torch import (
    Checkpoint,
    DistributedShardSampler,
    IterableDataset,
    MapDataset,
    ShardReader,
    ShardWriter,
    TensorFile,
    ThreadLoader,
    collate,
    save_tensors,
)
from forebay_torch.dcp import StorageReader, StorageWriter

__all__ = ["gpu"]

TOTAL, BATCH, SHARD_SAMPLES = 96, 8, 8
# Large enough that the ThreadLoader reuses the memory of batches.
SAMPLE_BYTES = 200_000
SLEEP_CYCLES = 50_000_000
"""About 30 ms of a GPU: copies that were issued meanwhile wait for it."""

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:.*unavailable or uninitialized"),
    pytest.mark.filterwarnings("ignore:.*process group is not initialized"),
    pytest.mark.filterwarnings("ignore:TypedStorage is deprecated"),
]


def pixels(data: Any) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def part(key: str, fields: Any) -> torch.Tensor:
    return pixels(fields["bin"])


def name(number: int) -> str:
    return f"o/{number:04}"


@pytest.fixture(scope="module")
def contents() -> dict[str, bytes]:
    return {name(i): random.Random(i).randbytes(SAMPLE_BYTES) for i in range(TOTAL)}


@pytest.fixture(scope="module")
def filled(cluster: Any, contents: dict[str, bytes]) -> Iterator[forebay.Bucket]:
    bucket = forebay.Client(cluster.endpoint, timeout=20).bucket("gpu").create()
    bucket.put_many(contents.items())
    yield bucket
    bucket.delete()


@pytest.fixture(scope="module")
def shards(cluster: Any, contents: dict[str, bytes]) -> Iterator[forebay.Bucket]:
    bucket = forebay.Client(cluster.endpoint, timeout=20).bucket("gpu-shards").create()
    with ShardWriter("s-%03d.tar", maxcount=SHARD_SAMPLES, bucket=bucket) as writer:
        for key, data in contents.items():
            writer.write({"__key__": key, "bin": data})
    yield bucket
    bucket.delete()


def moved(loader: Any) -> list[tuple[list[str], torch.Tensor]]:
    """Names and contents of all batches, copied to a GPU that is busy while the loader goes on."""
    found = []
    for names, batch in loader:
        assert batch.is_pinned()
        torch.cuda._sleep(SLEEP_CYCLES)
        found.append((list(names), batch.to(DEVICE, non_blocking=True)))
        del batch
    torch.cuda.synchronize()
    assert all(batch.device.type == DEVICE for _, batch in found)
    return found


def flat_names(batches: list[tuple[list[str], torch.Tensor]]) -> list[str]:
    return [name for names, _ in batches for name in names]


def check(batches: list[tuple[list[str], torch.Tensor]], contents: dict[str, bytes]) -> None:
    """Every sample came once, and is what was stored."""
    assert sorted(flat_names(batches)) == sorted(contents)
    for names, batch in batches:
        rows = batch.cpu().reshape(len(names), -1)
        wrong = [name for name, row in zip(names, rows, strict=True) if bytes(row.numpy()) != contents[name]]
        assert not wrong


@pytest.mark.parametrize("kind", ["processes", "threads"])
@pytest.mark.parametrize("form", ["tensors", "blocks"])
def test_objects_arrive_once_in_the_order_of_the_sampler_and_unaltered(
    filled: forebay.Bucket, contents: dict[str, bytes], kind: str, form: str
) -> None:
    as_tensors = form == "tensors"
    dataset = MapDataset(filled, data_format_fn=pixels if as_tensors else None, return_name=True)
    sampler = DistributedShardSampler(dataset, shuffle=True, seed=3)
    options: dict[str, Any] = {"batch_size": BATCH, "sampler": sampler, "pin_memory": True}
    options["collate_fn"] = None if as_tensors else collate
    if kind == "threads":
        loader: Any = ThreadLoader(dataset, threads=2, **options)
    else:
        loader = DataLoader(dataset, num_workers=2, **options)
    batches: Any = loader if as_tensors else ((batch.names, batch.data) for batch in loader)
    found = moved(batches)
    check(found, contents)
    expected = DistributedShardSampler(dataset, shuffle=True, seed=3)
    assert flat_names(found) == [name(index) for index in expected]


def test_a_stream_of_workers_arrives_in_the_order_of_its_epoch(
    filled: forebay.Bucket, contents: dict[str, bytes]
) -> None:
    options: dict[str, Any] = {"shuffle": True, "seed": 5, "batch_size": BATCH}
    options |= {"data_format_fn": pixels, "return_name": True}
    stream = IterableDataset(filled, **options)
    found = moved(DataLoader(stream, batch_size=BATCH, num_workers=2, pin_memory=True))
    check(found, contents)
    assert flat_names(found) == [name for name, _ in IterableDataset(filled, **options)]


@pytest.mark.parametrize("kind", ["processes", "threads"])
def test_members_of_shards_arrive_once_and_unaltered(
    shards: forebay.Bucket, contents: dict[str, bytes], kind: str
) -> None:
    reader = ShardReader(shards, decode=part, batch_size=BATCH)
    if kind == "threads":
        loader: Any = ThreadLoader(reader, BATCH, threads=2, pin_memory=True)
    else:
        loader = DataLoader(reader, batch_size=BATCH, num_workers=2, pin_memory=True)
    found = moved(loader)
    check(found, contents)
    # Two workers take shards in turn, whose batches are whole shards here.
    assert flat_names(found) == sorted(contents)


def test_fields_keep_keys_and_urls_in_pinned_memory(shards: forebay.Bucket) -> None:
    reader = ShardReader(shards, decode={"bin": pixels}, batch_size=BATCH)
    for keys, fields in DataLoader(reader, batch_size=BATCH, num_workers=2, pin_memory=True):
        assert fields["bin"].is_pinned() and fields["__key__"] == list(keys)
        assert len(fields["__url__"]) == BATCH


def trained() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """A model on the GPU, and an optimizer that has a state of it."""
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Linear(256, 8)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        model(torch.randn(16, 64, device=DEVICE)).square().mean().backward()
    optimizer.step()
    return model, optimizer


def state() -> dict[str, Any]:
    model, optimizer = trained()
    weight = torch.randn(512, 300, device=DEVICE).to(torch.bfloat16)
    views = {"weight": weight, "tied": weight, "row": weight[7], "turned": weight.T, "strided": weight[::2, 5:50]}
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "views": views, "step": 7}


def is_same(one: Any, other: Any) -> bool:
    """Whether both states have the same values, in the same types and shapes."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one.cpu(), other.cpu())
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(is_same, one, other))
    return bool(one == other)


@pytest.mark.parametrize("to", [DEVICE, "cpu"])
@pytest.mark.parametrize("way", ["save", "save_async", "writer"])
def test_a_checkpoint_of_gpu_tensors_loads_on_either_device(
    bucket: forebay.Bucket, to: str, way: str
) -> None:
    saved = state()
    before = copy.deepcopy(saved)
    checkpoint = Checkpoint(bucket_name=bucket.uri, storage_client=bucket.client)
    if way == "writer":
        with checkpoint.writer("a.pt") as writer:
            torch.save(saved, writer)
    elif way == "save":
        checkpoint.save(saved, "a.pt")
    else:
        # The GPU is still at the last step of the training when the save begins.
        torch.cuda._sleep(SLEEP_CYCLES)
        saved["views"]["weight"].add_(1)
        before["views"]["weight"].add_(1)
        future = checkpoint.save_async(saved, "a.pt")
        saved["views"]["weight"].zero_()
        future.result()
    if way == "writer":
        with checkpoint.reader("a.pt") as reader:
            loaded = torch.load(reader, map_location=to, weights_only=True)
    else:
        loaded = checkpoint.load("a.pt", map_location=to)
    views = loaded["views"]
    assert views["weight"].device.type == to and is_same(loaded, before)
    assert views["tied"].data_ptr() == views["weight"].data_ptr() == views["turned"].data_ptr()
    model, optimizer = trained()
    model.load_state_dict(loaded["model"])
    optimizer.load_state_dict(loaded["optimizer"])
    assert is_same(optimizer.state_dict()["state"], before["optimizer"]["state"])


@pytest.mark.parametrize("to", [DEVICE, "cpu"])
def test_a_distributed_checkpoint_of_gpu_tensors_loads_on_either_device(
    bucket: forebay.Bucket, to: str
) -> None:
    saved = state()
    uri = f"{bucket.uri}/run/step=7"
    dcp.save(saved, storage_writer=StorageWriter(uri, None, bucket.client, thread_count=2))

    def empty(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.zeros(value.shape, dtype=value.dtype, device=to)
        if isinstance(value, dict):
            return {key: empty(item) for key, item in value.items()}
        return [empty(item) for item in value] if isinstance(value, list) else 0

    loaded = {key: empty(value) for key, value in saved.items()}
    dcp.load(loaded, storage_reader=StorageReader(uri, None, bucket.client))
    assert loaded["views"]["turned"].device.type == to
    assert is_same(loaded["views"], saved["views"]) and is_same(loaded["model"], dict(saved["model"]))
    assert is_same(loaded["optimizer"]["state"], saved["optimizer"]["state"]) and loaded["step"] == 7


def test_safetensors_of_gpu_tensors_load_on_either_device(bucket: forebay.Bucket) -> None:
    views = state()["views"]
    checkpoint = Checkpoint(bucket_name=bucket.uri, storage_client=bucket.client)
    file = TensorFile(checkpoint, save_tensors(checkpoint, views, "a.safetensors"))
    for device in (DEVICE, "cpu"):
        loaded = file.get_many(device=device)
        assert loaded["row"].device.type == device and is_same(loaded, views)
