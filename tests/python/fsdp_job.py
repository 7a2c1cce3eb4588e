"""A training of two ranks by Lightning's FSDPStrategy on the CPU, that is saved, left and resumed.

    FOREBAY_ENDPOINT=... python fsdp_job.py URI FORM IN_BACKGROUND

It prints the step at which each of its two trainings ended.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
from forebay_torch.lightning import FSDPStrategy
from lightning import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel
from torch.distributed.fsdp import FullyShardedDataParallel


class OnCpu(FSDPStrategy):
    """Lightning wraps models for GPUs alone."""

    def _setup_model(self, model: Any) -> Any:
        return FullyShardedDataParallel(
            model, device_id=torch.device("cpu"), use_orig_params=True
        )


class Model(BoringModel):
    """Module with an optimizer that has a state."""

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def train(uri: str, form: str, in_background: bool, epochs: int, start: str | None) -> Trainer:
    trainer = Trainer(
        strategy=OnCpu("project", None, in_background, state_dict_type=form),
        accelerator="cpu",
        devices=2,
        max_epochs=epochs,
        limit_train_batches=4,
        limit_val_batches=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Model()
    trainer.fit(model, ckpt_path=start)
    return trainer


def main(uri: str, form: str, in_background: str) -> None:
    background = in_background == "yes"
    first = train(uri, form, background, 1, None)
    # Twice, of which the second replaces the first, then a wait.
    for _ in range(2):
        first.save_checkpoint(uri)
    with FullyShardedDataParallel.summon_full_params(first.strategy.model):
        before = {name: p.clone() for name, p in first.strategy.model.named_parameters()}
    first.strategy.teardown()
    torch.distributed.barrier()

    class Noting(Model):
        def on_train_start(self) -> None:
            with FullyShardedDataParallel.summon_full_params(self.trainer.strategy.model):
                for name, p in self.trainer.strategy.model.named_parameters():
                    assert torch.equal(p, before[name]), name
            (optimizer,) = self.trainer.optimizers
            assert all(int(state["step"]) == 4 for state in optimizer.state.values())

    globals()["Model"] = Noting
    second = train(uri, form, background, 2, uri)
    if first.is_global_zero:
        print(first.global_step, second.global_step)


if __name__ == "__main__":
    main(*sys.argv[1:])
    torch.distributed.barrier()
    sys.stdout.flush()
    # What FSDP keeps of gloo outlives its process group; a thread of it that ends while the interpreter
    # is taken down aborts the process.
    os._exit(0)
