"""Starts a program as two ranks, as torchrun does, but forked from one process that has imported torch
and the framework: importing them takes longer than most of what the tests do with them.

    python forked_ranks.py FRAMEWORK PORT PROGRAM ARGUMENT…
"""

from __future__ import annotations

import gc
import importlib
import os
import runpy
import signal
import sys

# Parts of each framework that programs use, and that it imports at their first use.
PARTS = {
    "accelerate": ("Accelerator",),
    "lightning": ("Trainer", "LightningModule"),
    "transformers": ("Trainer", "TrainingArguments", "PreTrainedModel", "PretrainedConfig"),
}


def become_ranks(port: str) -> None:
    """Forks two ranks, in which this returns; ends with them, or with the first that fails."""
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=port, WORLD_SIZE="2", LOCAL_WORLD_SIZE="2"
    )
    left = set()
    for rank in range(2):
        pid = os.fork()
        if pid == 0:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), GROUP_RANK="0")
            return
        left.add(pid)
    while left:
        pid, status = os.wait()
        left.discard(pid)
        if status:
            for other in left:
                os.kill(other, signal.SIGKILL)
            os._exit(1)
    os._exit(0)


def release_process_groups() -> None:
    """Ends the threads of PyTorch's process groups while the interpreter still runs.

    A model in DistributedDataParallel is part of a cycle of references and holds its group until the
    interpreter ends. If a thread of Gloo releases its last tensor only then, the process aborts with
    "terminate called without an active exception" (https://github.com/pytorch/pytorch/pull/179291).
    """
    distributed = sys.modules["torch"].distributed
    if distributed.is_initialized():
        distributed.destroy_process_group()
    gc.collect()


if __name__ == "__main__":
    framework, port, program = sys.argv[1:4]
    module = importlib.import_module(framework)
    for part in PARTS[framework]:
        getattr(module, part)
    importlib.import_module("forebay_torch")
    become_ranks(port)
    sys.argv = sys.argv[3:]
    sys.path[0] = os.path.dirname(program)
    runpy.run_path(program, run_name="__main__")
    release_process_groups()
    sys.stdout.flush()
