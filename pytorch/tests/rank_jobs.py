"""Jobs of the ranks in the tests of distributed checkpoints, each in a process of its own.

    python rank_jobs.py JOB RANK WORLD FOLDER ENDPOINT URI
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

FULL = (64, 5000)


def run_ranks(job: str, world: int, folder: Path, endpoint: str, uri: str) -> list[str]:
    """Runs a job with so many gloo processes; what each of them printed."""
    rendezvous = folder / f"rendezvous-{uuid.uuid4().hex}"
    command = [sys.executable, __file__, job]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(world), str(rendezvous), endpoint, uri],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    try:
        outputs = [rank.communicate(timeout=200) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for rank, (_, errors) in zip(ranks, outputs, strict=True):
        assert rank.returncode == 0, errors
    return [output for output, _ in outputs]


def main(job: str, rank: int, world: int, rendezvous: str, endpoint: str, uri: str) -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    import forebay
    from forebay_torch.dcp import background as background_saves

    dist.init_process_group(
        "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world
    )
    mesh = init_device_mesh("cpu", (world,))
    full = torch.arange(FULL[0] * FULL[1], dtype=torch.float32).reshape(FULL)

    def state(factor: float = 1) -> dict[str, Any]:
        sharded = distribute_tensor(full * factor, mesh, [Shard(0)])
        return {"sharded": sharded, "same": torch.ones(7) * factor, "step": int(3 * factor)}

    client = forebay.Client(endpoint, timeout=20)
    JOBS[job](rank, client, uri, state)
    dist.barrier()
    dist.destroy_process_group()
    gc.collect()
    groups = background_saves._groups
    assert groups is None or groups[1]() is None, "the group of the saves outlives its end"
    # The mesh keeps gloo's threads. They drop tensors, which now and then aborts an interpreter that
    # is being torn down; all that is tested is done by now.
    sys.stdout.flush()
    os._exit(0)


def check(state: dict[str, Any], wanted: dict[str, Any]) -> None:
    import torch

    assert torch.equal(state["sharded"].to_local(), wanted["sharded"].to_local())
    assert torch.equal(state["same"], wanted["same"]) and state["step"] == wanted["step"]


def save(rank: int, client: Any, uri: str, state: Any) -> None:
    """One checkpoint."""
    import torch.distributed.checkpoint as dcp
    from forebay_torch.dcp import StorageWriter

    dcp.save(state(), storage_writer=StorageWriter(uri, None, client, thread_count=2))


def load(rank: int, client: Any, uri: str, state: Any) -> None:
    """The same in another number of ranks."""
    import torch.distributed.checkpoint as dcp
    from forebay_torch.dcp import StorageReader

    loaded = state(0)
    dcp.load(loaded, storage_reader=StorageReader(uri, None, client))
    check(loaded, state())


def background(rank: int, client: Any, uri: str, state: Any) -> None:
    """torch's async_save as the connector for Google shows it, then ours, then failures."""
    import pytest
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from forebay_torch.dcp import StorageReader, StorageWriter, async_save
    from torch.distributed.checkpoint import async_save as torch_async_save
    from torch.distributed.checkpoint.api import CheckpointException

    group = dist.new_group(list(range(dist.get_world_size())), backend="gloo")
    writer = StorageWriter(uri, "project", client)
    future = None
    for epoch in range(3):
        if future is not None:
            future.result()
        future = torch_async_save(
            state(epoch), checkpoint_id=uri, storage_writer=writer, process_group=group
        )
    future.result()
    loaded = state(0)
    dcp.load(loaded, storage_reader=StorageReader(uri, None, client))
    check(loaded, state(2))

    futures = []
    for epoch in range(3, 6):
        futures.append(
            async_save(state(epoch), storage_writer=writer, checkpoint_id=uri, process_group=group)
        )
        assert all(before.done() for before in futures[:-1])
    futures[-1].result(60)
    dcp.load(loaded, storage_reader=StorageReader(uri, None, client))
    check(loaded, state(5))

    missing = StorageWriter("ais://there-is-no-such-bucket/x", None, client)
    failed = torch_async_save(state(), storage_writer=missing, process_group=group)
    with pytest.raises(CheckpointException, match="there-is-no-such-bucket"):
        failed.result(60)
    async_save(state(), storage_writer=missing, process_group=group)
    with pytest.raises(CheckpointException, match="there-is-no-such-bucket"):
        async_save(state(), storage_writer=writer, process_group=group)
    async_save(state(6), storage_writer=writer, checkpoint_id=uri, process_group=group).result(60)


def meanwhile(rank: int, client: Any, uri: str, state: Any) -> None:
    """Saves in the background, while the ranks talk to each other as a training does."""
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from forebay_torch.dcp import StorageReader, StorageWriter, async_save

    saving = None
    for epoch in range(1, 4):
        saving = async_save(state(epoch), storage_writer=StorageWriter(uri, None, client))
        for size in range(1, 200):
            outputs = torch.full((size,), float(rank))
            dist.all_reduce(outputs)
            assert torch.equal(outputs, torch.ones(size)), "0 of one rank and 1 of the other"
    assert saving is not None
    saving.result(60)
    loaded = state(0)
    dcp.load(loaded, storage_reader=StorageReader(uri, None, client))
    check(loaded, state(3))


def share(rank: int, client: Any, uri: str, state: Any) -> None:
    """Prints what workers that are not forked read of a stream that ranks share."""
    from torch.utils.data import DataLoader

    from forebay_torch.compat.s3 import S3IterableDataset

    stream = S3IterableDataset.from_prefix(uri, client=client, enable_sharding=True)
    context = "spawn" if rank == 0 else "forkserver"
    loader = DataLoader(stream, batch_size=None, num_workers=1, multiprocessing_context=context)
    for reader in loader:
        print(reader.key, len(reader.read()))


def turned_round(pair: tuple[str, str]) -> tuple[str, str]:
    return pair[1], pair[0]


def paired(url: str) -> tuple[str, int]:
    return url, 0


def steps(rank: int, client: Any, uri: str, state: Any) -> None:
    """Prints what this rank reads of streams while a model waits for all ranks in every step."""
    import json

    import torch
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader

    from forebay_torch import IterableDataset, MapDataset, MixedDataset, ShardReader, ThreadLoader

    model = DistributedDataParallel(torch.nn.Linear(1, 1))

    def objects() -> IterableDataset:
        return IterableDataset(f"{uri}/o/", storage_client=client, batch_size=2)

    def shards(**options: Any) -> ShardReader:
        return ShardReader(f"{uri}/s/", client=client, batch_size=2, **options)

    def mixed() -> MixedDataset:
        return MixedDataset([MapDataset(f"{uri}/o/", storage_client=client)], batch_size=2)

    def lines() -> Any:
        from forebay_torch.datapipes import IterableWrapper

        pipe = IterableWrapper([f"{uri}/t/"]).list_files_by_s3(client=client)
        return pipe.load_files_by_s3(client=client).readlines(decode=True).map(turned_round)

    def files() -> Any:
        from forebay_torch.datapipes import IterableWrapper

        return IterableWrapper([f"{uri}/t/"]).list_files_by_s3(client=client).map(paired)

    def trained(loader: Any) -> list[str]:
        seen: list[str] = []
        for keys, _ in loader:
            model(torch.ones(1, 1)).sum().backward()
            seen += keys
        return seen

    def read(loader: Any) -> list[str]:
        return [key for keys, _ in loader for key in keys]

    spawned = {"num_workers": 1, "multiprocessing_context": "spawn"}
    for case, dataset, options in (
        ("objects", objects(), {}),
        ("objects of workers", objects(), {"num_workers": 2}),
        ("objects of spawned workers", objects(), spawned),
        ("mixed", mixed(), {}),
        ("lines", lines(), {}),
        ("lines of workers", lines(), {"num_workers": 2}),
        ("files", files(), {}),
        ("shards", shards(), {}),
        ("shards of workers", shards(), {"num_workers": 2}),
        ("shards of spawned workers", shards(), spawned),
        ("shards without rests", shards(), {"drop_last": True}),
        ("dropped shards", shards(equal_length="drop"), {}),
        ("objects of threads", objects(), "threads"),
        ("shards of threads", shards(), "threads"),
    ):
        is_threaded = options == "threads"
        loader = ThreadLoader(dataset, 2) if is_threaded else DataLoader(dataset, 2, **options)
        try:
            print(json.dumps({case: trained(loader)}))
        except ValueError as error:
            print(json.dumps({case: str(error)}))
    with torch.no_grad():
        print(json.dumps({"evaluated lines": read(DataLoader(lines(), 2))}))
        print(json.dumps({"evaluated objects": read(DataLoader(objects(), 2))}))
        print(json.dumps({"evaluated shards": read(DataLoader(shards(), 2, num_workers=2))}))
    print(json.dumps({"free shards": read(DataLoader(shards(equal_length="none"), 2))}))
    with model.join():
        print(json.dumps({"joined shards": trained(DataLoader(shards(), 2))}))


JOBS = {
    "steps": steps,
    "share": share,
    "meanwhile": meanwhile,
    "save": save,
    "load": load,
    "background": background,
}

if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
