#!/usr/bin/env python3
"""Trains with DistributedDataParallel, stops in the middle of an epoch and goes on in another shape.

    FOREBAY_ENDPOINT=http://127.0.0.1:7400 python train_ddp.py ais://images/train/

A first job of two processes is stopped after a few steps; a second one, of as many processes as
`--then` says, loads what the first saved and takes the rest of the epoch. The two together see every
object once. On machines with GPUs replace "gloo" by "nccl" and move the model and the batches.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from forebay_torch import DistributedShardSampler, MapDataset

FEATURES = 32


def features(content: bytes) -> torch.Tensor:
    """How often each byte, modulo FEATURES, is in the object: stands for decoding."""
    bytes_of = torch.frombuffer(bytearray(content or b"\0"), dtype=torch.uint8).long() % FEATURES
    return torch.bincount(bytes_of, minlength=FEATURES).float() / len(bytes_of)


def train(rank: int, world_size: int, folder: str, arguments: argparse.Namespace, stop: int) -> None:
    """One process of a job; stops after ``stop`` steps, or at the end of the epoch for 0."""
    place = Path(folder)
    rendezvous = place / f"rendezvous-{world_size}-{stop}"
    distributed.init_process_group(
        "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world_size
    )
    dataset = MapDataset(arguments.source, data_format_fn=features, return_name=True)
    # Rank and number of ranks come from the process group. "none" sees every object exactly once,
    # so ranks may differ by a step; Join, below, copes with that. "wrap" would make them equal.
    sampler = DistributedShardSampler(dataset, seed=1, equal_length="none")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(FEATURES, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    saved = place / "state.pt"
    if saved.exists():
        state = torch.load(saved, weights_only=True)
        model.load_state_dict(state["model"])
        sampler.load_state_dict(state["data"])
    loader = DataLoader(
        dataset, batch_size=arguments.batch_size, sampler=sampler, num_workers=arguments.workers
    )
    seen: list[str] = []
    taken = steps = 0
    with model.join():
        for names, values in loader:
            optimizer.zero_grad()
            loss = model(values).square().mean()
            loss.backward()
            optimizer.step()
            seen += names
            taken, steps = taken + len(names), steps + 1
            if steps == stop:
                break
    # The state of rank 0 is for all: it does not depend on the number of ranks.
    if rank == 0:
        data = sampler.state_dict(num_samples=taken)
        torch.save({"model": model.state_dict(), "data": data}, saved)
    everything: list[Any] = [None] * world_size
    distributed.all_gather_object(everything, seen)
    if rank == 0:
        with (place / "seen").open("a") as log:
            log.writelines(f"{name}\n" for names in everything for name in names)
        count = sum(map(len, everything))
        print(f"{world_size} processes, {steps} steps: {count} samples, loss {loss:.5f}", flush=True)
    distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("source", help="what to read, such as ais://images/train/")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--workers", type=int, default=1, help="of each process's loader")
    parser.add_argument("--stop", type=int, default=3, help="steps of the first job")
    parser.add_argument("--then", type=int, default=1, help="processes of the second job")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # gloo's threads outlive the model of DDP. Processes of a fork server end without taking an
        # interpreter down under them, which now and then aborts.
        for world_size, stop in ((2, arguments.stop), (arguments.then, 0)):
            torch.multiprocessing.start_processes(
                train, (world_size, folder, arguments, stop), world_size, start_method="forkserver"
            )
        names = (Path(folder) / "seen").read_text().splitlines()
        print(f"{len(names)} samples in all, {len(set(names))} of them different")


if __name__ == "__main__":
    main()
