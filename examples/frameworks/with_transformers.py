#!/usr/bin/env python3
"""Trains by the Trainer of transformers, with its defaults.

    torchrun --nproc-per-node 2 with_transformers.py ais://numbers --workers 4

The Trainer hands its loader to accelerate, which shares batches among ranks.
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import torch
import transformers
from data import seen_by_all

from forebay_torch import IterableDataset, MapDataset


def sample(content: bytes) -> dict[str, torch.Tensor]:
    """Returns the arguments of the model, by name."""
    value = int(content)
    return {"x": torch.tensor([float(value)]), "labels": torch.tensor(value)}


class Config(transformers.PretrainedConfig):
    """Of a model without settings."""

    model_type = "forebay-example"


class Model(transformers.PreTrainedModel):
    """Learns nothing, and counts what it has seen."""

    config_class = Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.layer = torch.nn.Linear(1, 1)
        self.seen: list[int] = []
        self.post_init()

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
        self.seen += labels.tolist()
        out = self.layer(x)
        return {"loss": out.square().mean(), "logits": out}


class Report(transformers.TrainerCallback):
    """Prints what all ranks have seen in an epoch."""

    def on_epoch_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        model = more["model"]
        seen, model.seen = seen_by_all(model.seen), []
        if state.is_world_process_zero:
            print(f"epoch {round(state.epoch) - 1}: {len(seen)} samples, {len(set(seen))} different", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("source", help="what to read, such as ais://numbers")
    parser.add_argument("--stream", action="store_true", help="an IterableDataset: rank 0 reads for all")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=2)
    arguments = parser.parse_args()
    options = {"data_format_fn": sample, "return_name": False}
    if arguments.stream:
        dataset: Any = IterableDataset(arguments.source, shuffle=True, batch_size=4, **options)
    else:
        dataset = MapDataset(arguments.source, **options)
    with tempfile.TemporaryDirectory() as folder:
        settings = transformers.TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=4,
            num_train_epochs=arguments.epochs,
            dataloader_num_workers=arguments.workers,
            learning_rate=1e-6,
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
            save_strategy="no",
            logging_strategy="no",
        )
        trainer = transformers.Trainer(
            model=Model(Config()), args=settings, train_dataset=dataset, callbacks=[Report()]
        )
        trainer.train()


if __name__ == "__main__":
    main()
