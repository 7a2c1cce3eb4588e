#!/usr/bin/env python3
"""Trains a small network for one epoch on images that lie in a bucket of a Forebay cluster.

    FOREBAY_ENDPOINT=http://127.0.0.1:7400 python train_images.py ais://images/train/
    FOREBAY_ENDPOINT=http://127.0.0.1:7400 python train_images.py --shards ais://shards

An image's label is the folder it lies in: `train/circle/000123.jpg` shows a circle, as an object or
as a file in a shard. Run it again with `--state FILE` and it goes on where the last epoch ended.
"""

from __future__ import annotations

import argparse
import io
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader

import forebay
from forebay_torch import DynamicBatchSampler, MapDataset, ShardReader

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


@dataclass
class Epoch:
    """Batches of images and class numbers, and what they are made of."""

    batches: DataLoader[Any]
    classes: list[str]
    bytes: int


def from_objects(arguments: argparse.Namespace, epoch: int) -> Epoch:
    """Every image is an object; a batch is as many as fit into ``batch_bytes``."""
    dataset = MapDataset(arguments.source, data_format_fn=decode, return_name=True)
    classes = sorted({label_of(name) for name, _ in dataset.objects})
    sampler = DynamicBatchSampler(dataset, max_batch_size=arguments.batch_bytes, shuffle=True)
    sampler.set_epoch(epoch)
    batches = DataLoader(
        dataset, batch_sampler=sampler, num_workers=arguments.workers, collate_fn=Collate(classes)
    )
    return Epoch(batches, classes, dataset.objects.total_size)


def pixels_of_jpg(key: str, parts: dict[str, bytes]) -> torch.Tensor:
    """Decodes a sample of a shard into a tensor."""
    return decode(parts["jpg"])


def from_shards(arguments: argparse.Namespace, epoch: int) -> Epoch:
    """Every image is a file in a shard; shards are streamed, their samples drawn from a buffer."""
    dataset = ShardReader(
        arguments.source, shuffle_shards=True, shuffle_buffer=1000, decode=pixels_of_jpg
    )
    dataset.set_epoch(epoch)
    bucket, _ = forebay.Client().bucket_of(arguments.source)
    indexes = [bucket.shard_index(name) for name, _ in dataset.objects]
    classes = sorted({label_of(member.name) for index in indexes for member in index.members})
    batches = DataLoader(
        dataset, batch_size=40, num_workers=arguments.workers, collate_fn=Collate(classes)
    )
    return Epoch(batches, classes, sum(m.size for index in indexes for m in index.members))


def network(classes: int) -> nn.Module:
    def block(inputs: int, outputs: int) -> list[nn.Module]:
        conv = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False)
        return [conv, nn.BatchNorm2d(outputs), nn.ReLU()]

    layers = block(3, 16) + block(16, 32) + block(32, 64)
    return nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(64, classes))


def train(arguments: argparse.Namespace) -> dict[str, Any]:
    start_time = time.perf_counter()
    torch.manual_seed(0)
    torch.set_num_threads(arguments.threads)

    state: dict[str, Any] = {"epoch": -1}
    if arguments.state and arguments.state.exists():
        state = torch.load(arguments.state, weights_only=True)
    epoch = state["epoch"] + 1
    data = (from_shards if arguments.shards else from_objects)(arguments, epoch)
    model = network(len(data.classes))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    if epoch > 0:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    model.train()
    samples = correct = 0
    loss_sum = waited = 0.0
    started = time.perf_counter()
    batches = iter(data.batches)
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
    return {
        "epoch": epoch + 1,
        "classes": len(data.classes),
        "samples": samples,
        "bytes": data.bytes,
        "seconds": seconds,
        "setup_seconds": started - start_time,
        "samples_per_s": samples / seconds,
        "mb_per_s": data.bytes / seconds / 1e6,
        "wait_share": waited / seconds,
        "loss": loss_sum / max(samples, 1),
        "accuracy": correct / max(samples, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("source", help="where the images are, such as ais://images/train/")
    parser.add_argument("--shards", action="store_true", help="the source holds shards, not images")
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
