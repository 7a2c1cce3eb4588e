#!/usr/bin/env python3
"""Trains with checkpoints in the cluster: saved while training goes on, the last few kept.

    FOREBAY_ENDPOINT=http://127.0.0.1:7400 python checkpoint_single_node.py ais://checkpoints/run-7

Run it again, and again after a Ctrl-C: it goes on from the newest checkpoint that is whole. In the place
of `ais://` stands `s3://`, `gs://` or `az://` for a bucket of a cloud.
"""

from __future__ import annotations

import argparse

import torch
from torch import nn

import forebay
from forebay_torch import Checkpoint

FEATURES = 64


def batch(step: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the random features of a step, and their sums as the labels to learn."""
    values = torch.randn(size, FEATURES, generator=torch.Generator().manual_seed(step))
    return values, values.sum(1, keepdim=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", help="bucket and folder, such as ais://checkpoints/run-7")
    parser.add_argument("--steps", type=int, default=30, help="of this run")
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--keep", type=int, default=2, help="checkpoints that are kept")
    parser.add_argument("--width", type=int, default=256, help="of the hidden layer")
    arguments = parser.parse_args()

    bucket, _ = forebay.Client().bucket_of(arguments.folder)
    if bucket.provider == "ais":
        bucket.create(exist_ok=True)
    checkpoint = Checkpoint(bucket_name=arguments.folder)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, arguments.width), nn.ReLU(), nn.Linear(arguments.width, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    begin = 0
    found = checkpoint.resume_latest()
    if found is not None:
        path, state = found
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        begin = state["step"]
        print(f"goes on from {path}")

    for step in range(begin, begin + arguments.steps):
        values, wanted = batch(step, 64)
        optimizer.zero_grad()
        loss = (model(values) - wanted).square().mean()
        loss.backward()
        optimizer.step()
        if (step + 1) % arguments.save_every == 0:
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "step": step + 1,
            }
            # Copied, then saved while the next steps are made. The error of a save is raised by the
            # next one, or by wait().
            checkpoint.save_async(state, f"step={step + 1}.pt")
            print(f"step {step + 1}: loss {loss:.4f}", flush=True)
    checkpoint.wait()
    removed = checkpoint.prune(keep=arguments.keep)
    print(f"newest {checkpoint.latest()}, {len(removed)} removed")


if __name__ == "__main__":
    main()
