#!/usr/bin/env python3
"""Trains by Lightning, with the defaults of its Trainer.

    torchrun --nproc-per-node 2 with_lightning.py ais://numbers --workers 4

Lightning does not replace the sampler, and sets its epoch; the ranks share the samples.
"""

from __future__ import annotations

import argparse
import os

import lightning
import torch
from data import number, seen_by_all
from torch.utils.data import DataLoader

from forebay_torch import DistributedShardSampler, IterableDataset, MapDataset


class Model(lightning.LightningModule):
    """Learns nothing, and counts what it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen: list[int] = []

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        self.seen += batch.tolist()
        loss: torch.Tensor = self.layer(batch.float()[:, None]).square().mean()
        return loss

    def on_train_epoch_end(self) -> None:
        seen, self.seen = seen_by_all(self.seen), []
        if self.global_rank == 0:
            print(f"epoch {self.current_epoch}: {len(seen)} samples, {len(set(seen))} different")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("source", help="what to read, such as ais://numbers")
    parser.add_argument("--stream", action="store_true", help="an IterableDataset, without a sampler")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=2)
    arguments = parser.parse_args()
    options = {"data_format_fn": number, "return_name": False}
    if arguments.stream:
        stream = IterableDataset(arguments.source, shuffle=True, batch_size=4, **options)
        loader = DataLoader(stream, batch_size=4, num_workers=arguments.workers)
    else:
        dataset = MapDataset(arguments.source, **options)
        sampler = DistributedShardSampler(dataset)
        loader = DataLoader(dataset, batch_size=4, sampler=sampler, num_workers=arguments.workers)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),
        max_epochs=arguments.epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Model(), loader)


if __name__ == "__main__":
    main()
