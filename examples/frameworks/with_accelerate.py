#!/usr/bin/env python3
"""Trains by accelerate, with its defaults.

    torchrun --nproc-per-node 2 with_accelerate.py ais://numbers --workers 4

`prepare` shares batches among ranks. Datasets and samplers notice that and give it all samples.
"""

from __future__ import annotations

import argparse

import torch
from accelerate import Accelerator
from data import number, seen_by_all
from torch.utils.data import DataLoader

from forebay_torch import IterableDataset, MapDataset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("source", help="what to read, such as ais://numbers")
    parser.add_argument("--stream", action="store_true", help="an IterableDataset: rank 0 reads for all")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=2)
    arguments = parser.parse_args()
    accelerator = Accelerator(cpu=True)
    options = {"data_format_fn": number, "return_name": False}
    if arguments.stream:
        # batch_size lets workers deliver batches in the epoch's order.
        stream = IterableDataset(arguments.source, shuffle=True, batch_size=4, **options)
        plain = DataLoader(stream, batch_size=4, num_workers=arguments.workers)
    else:
        dataset = MapDataset(arguments.source, **options)
        plain = DataLoader(dataset, batch_size=4, shuffle=True, num_workers=arguments.workers)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    model, optimizer, loader = accelerator.prepare(model, optimizer, plain)
    for epoch in range(arguments.epochs):
        own: list[int] = []
        for batch in loader:
            loss = model(batch.float()[:, None]).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            own += batch.tolist()
        seen = seen_by_all(own)
        accelerator.print(f"epoch {epoch}: {len(seen)} samples, {len(set(seen))} different", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
