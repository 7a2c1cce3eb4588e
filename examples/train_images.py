#!/usr/bin/env python3
"""Trains a small network for one epoch on images that lie in a bucket of a Forebay cluster.

    FOREBAY_ENDPOINT=http://127.0.0.1:7400 python train_images.py ais://images/train/

An image's label is the folder it lies in: `train/circle/000123.jpg` shows a circle. Run it again
with `--state FILE` and it goes on where the last epoch ended.
"""

from __future__ import annotations

import argparse
import io
import json
import time
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader

from forebay_torch import DynamicBatchSampler, MapDataset

SIDE = 64


def decode(content: bytes) -> torch.Tensor:
    """Pixels of a JPEG as a tensor of bytes, SIDE x SIDE x 3."""
    image = Image.open(io.BytesIO(content)).convert("RGB").resize((SIDE, SIDE))
    return torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).view(SIDE, SIDE, 3)


def label_of(name: str) -> str:
    return name.split("/")[-2]


class Collate:
    """Makes a batch of images and class numbers from samples of (name, pixels)."""

    def __init__(self, classes: list[str]) -> None:
        self.number = {name: i for i, name in enumerate(classes)}

    def __call__(self, samples: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
        names, pixels = zip(*samples, strict=True)
        labels = torch.tensor([self.number[label_of(name)] for name in names])
        return torch.stack(pixels).permute(0, 3, 1, 2), labels


def network(classes: int) -> nn.Module:
    def block(inputs: int, outputs: int) -> list[nn.Module]:
        conv = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False)
        return [conv, nn.BatchNorm2d(outputs), nn.ReLU()]

    layers = block(3, 16) + block(16, 32) + block(32, 64)
    return nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(64, classes))


def train(arguments: argparse.Namespace) -> dict[str, Any]:
    begun = time.perf_counter()
    torch.manual_seed(0)
    torch.set_num_threads(arguments.threads)

    dataset = MapDataset(arguments.source, data_format_fn=decode, return_name=True)
    classes = sorted({label_of(name) for name, _ in dataset.objects})
    model = network(len(classes))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    epoch = 0
    if arguments.state and arguments.state.exists():
        state = torch.load(arguments.state, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        epoch = state["epoch"] + 1

    sampler = DynamicBatchSampler(dataset, max_batch_size=arguments.batch_bytes, shuffle=True)
    sampler.set_epoch(epoch)
    loader = DataLoader(
        dataset, batch_sampler=sampler, num_workers=arguments.workers, collate_fn=Collate(classes)
    )

    model.train()
    samples = correct = 0
    loss_sum = waited = 0.0
    started = time.perf_counter()
    batches = iter(loader)
    while True:
        asked = time.perf_counter()
        batch = next(batches, None)
        waited += time.perf_counter() - asked
        if batch is None:
            break
        images, labels = batch
        scores = model(images.float() / 127.5 - 1)
        loss = nn.functional.cross_entropy(scores, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        samples += len(labels)
        correct += int((scores.argmax(1) == labels).sum())
        loss_sum += loss.item() * len(labels)
    seconds = time.perf_counter() - started

    if arguments.state:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        torch.save(state, arguments.state)
    total = dataset.objects.total_size
    return {
        "epoch": epoch + 1,
        "classes": len(classes),
        "samples": samples,
        "bytes": total,
        "seconds": seconds,
        "setup_seconds": started - begun,
        "samples_per_s": samples / seconds,
        "mb_per_s": total / seconds / 1e6,
        "wait_share": waited / seconds,
        "loss": loss_sum / max(samples, 1),
        "accuracy": correct / max(samples, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("source", help="where the images are, such as ais://images/train/")
    parser.add_argument("--batch-bytes", type=int, default=128_000, help="most bytes in a batch")
    parser.add_argument("--workers", type=int, default=2, help="processes that load data")
    parser.add_argument("--threads", type=int, default=1, help="threads that train")
    parser.add_argument("--state", type=Path, help="file to continue from and to write")
    parser.add_argument("--json", type=Path, help="file for the result, as JSON")
    arguments = parser.parse_args()
    result = train(arguments)
    print(
        "epoch {epoch}: {samples} samples in {seconds:.1f} s, {samples_per_s:.0f} samples/s, "
        "{mb_per_s:.1f} MB/s, waited for data {wait_share:.0%} of the time, "
        "loss {loss:.3f}, accuracy {accuracy:.1%}".format(**result)
    )
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
