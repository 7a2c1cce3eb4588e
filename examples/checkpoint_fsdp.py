#!/usr/bin/env python3
"""Trains a model that is sharded over processes (FSDP), saves it while it trains, and goes on with
another number of processes.

    FOREBAY_ENDPOINT=http://127.0.0.1:7400 python checkpoint_fsdp.py ais://checkpoints/fsdp

Each process writes its own shards, in the background, and a checkpoint counts when all of them are
there. On machines with GPUs replace "gloo" of the training by "nccl", and "cpu" by "cuda".
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import distributed, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import forebay
from forebay_torch import Checkpoint
from forebay_torch.dcp import StorageReader, StorageWriter, async_save

FEATURES = 64


def batch(seed: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns random features, and their sums as the labels to learn."""
    values = torch.randn(size, FEATURES, generator=torch.Generator().manual_seed(seed))
    return values, values.sum(1, keepdim=True)


def sharded(width: int, world_size: int) -> nn.Module:
    """The model, of which each process has its part."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, 1))
    mesh = init_device_mesh("cpu", (world_size,))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> dict[str, Any]:
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "step": step}


def train(rank: int, world_size: int, folder: str, arguments: argparse.Namespace) -> None:
    """One process of a job: goes on from the newest checkpoint, and leaves one at the end."""
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world_size
    )
    model = sharded(arguments.width, world_size)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    exam, answers = batch(-1, 256)
    begin = 0
    newest = Checkpoint().latest(f"{arguments.folder}/")
    if newest is not None:
        # The tensors that are there are loaded into; those of processes that are no more, too.
        state = state_of(model, optimizer, 0)
        dcp.load(state, storage_reader=StorageReader(newest))
        set_state_dict(
            model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
        )
        begin = state["step"]
    losses = [(model(exam) - answers).square().mean().item()]

    saving = None
    for step in range(begin, begin + arguments.steps):
        values, wanted = batch(step * world_size + rank, 64 // world_size)
        optimizer.zero_grad()
        (model(values) - wanted).square().mean().backward()
        optimizer.step()
        if (step + 1) % arguments.save_every == 0:
            # Waits for the save before, and raises what that failed of, in every process.
            saving = async_save(
                state_of(model, optimizer, step + 1),
                storage_writer=StorageWriter(f"{arguments.folder}/step={step + 1}"),
            )
    losses.append((model(exam) - answers).square().mean().item())
    if saving is not None:
        saving.result()
    if rank == 0:
        removed = Checkpoint().prune(f"{arguments.folder}/", keep=arguments.keep)
        print(
            f"{world_size} processes: steps {begin} to {begin + arguments.steps}, "
            f"loss {losses[0]:.4f} to {losses[1]:.4f}, {len(removed)} removed",
            flush=True,
        )
    distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", help="bucket and folder, such as ais://checkpoints/fsdp")
    parser.add_argument("--processes", type=int, nargs="+", default=[4, 2], help="of each job")
    parser.add_argument("--steps", type=int, default=20, help="of each job")
    parser.add_argument("--save-every", type=int, default=5)
    parser.add_argument("--keep", type=int, default=2, help="checkpoints that are kept")
    parser.add_argument("--width", type=int, default=256, help="of the hidden layer")
    arguments = parser.parse_args()
    arguments.folder = arguments.folder.rstrip("/")
    bucket, _ = forebay.Client().bucket_of(arguments.folder)
    if bucket.provider == "ais":
        bucket.create(exist_ok=True)
    for world_size in arguments.processes:
        with tempfile.TemporaryDirectory() as folder:
            # Processes of a fork server end without taking an interpreter down under the threads
            # of gloo, which outlive the model's mesh.
            torch.multiprocessing.start_processes(
                train, (world_size, folder, arguments), world_size, start_method="forkserver"
            )
    print(f"newest {Checkpoint().latest(arguments.folder + '/')}")


if __name__ == "__main__":
    main()
