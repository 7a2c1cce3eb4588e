#!/usr/bin/env python3
"""Segments images: each sample of a shard is a picture and the mask of what is to be found in it.

    FOREBAY_ENDPOINT=http://127.0.0.1:7400 python train_segmentation.py ais://scans --generate 400
    FOREBAY_ENDPOINT=http://127.0.0.1:7400 python train_segmentation.py ais://scans

Samples are `KEY.image.npy`, float32 of shape (32, 32), and `KEY.mask.npy`, uint8 of the same shape.
`--generate` writes shards of noise with a bright disc in each.
"""

from __future__ import annotations

import argparse
import io

import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader

import forebay
from forebay_torch import Decoder, ShardReader, ShardWriter

SIDE = 32


def npy(array: numpy.ndarray) -> bytes:
    """The array as a file of numpy."""
    file = io.BytesIO()
    numpy.save(file, array)
    return file.getvalue()


def generate(bucket: forebay.Bucket, count: int) -> None:
    """Writes shards of drawn samples."""
    chance = numpy.random.default_rng(0)
    rows, columns = numpy.mgrid[:SIDE, :SIDE]
    with ShardWriter("scan-%04d.tar", maxcount=50, bucket=bucket) as writer:
        for number in range(count):
            row, column = chance.integers(8, SIDE - 8, 2)
            mask = (rows - row) ** 2 + (columns - column) ** 2 < chance.integers(9, 49)
            image = chance.normal(0, 0.3, (SIDE, SIDE)) + mask
            writer.write(
                {
                    "__key__": f"{number:06}",
                    "image.npy": npy(image.astype("float32")),
                    "mask.npy": npy(mask.astype("uint8")),
                }
            )


def overlap(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Intersection over union of two masks, 0 to 1."""
    both, either = (found & wanted).sum().item(), (found | wanted).sum().item()
    return both / either if either else 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bucket", help="such as ais://scans")
    parser.add_argument("--generate", type=int, metavar="N", help="first write N samples")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()

    bucket, _ = forebay.Client().bucket_of(arguments.bucket)
    if arguments.generate:
        generate(bucket.create(exist_ok=True), arguments.generate)
    reader = ShardReader(bucket, shuffle_shards=True, shuffle_buffer=100, decode=Decoder())
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 1, 5, padding=2)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(arguments.epochs):
        reader.set_epoch(epoch)
        loader = DataLoader(
            reader, batch_size=arguments.batch_size, num_workers=arguments.workers
        )
        seen, good = 0, 0.0
        for keys, parts in loader:
            images, masks = parts["image.npy"].unsqueeze(1), parts["mask.npy"].unsqueeze(1)
            optimizer.zero_grad()
            scores = model(images)
            loss = nn.functional.binary_cross_entropy_with_logits(scores, masks.float())
            loss.backward()
            optimizer.step()
            seen += len(keys)
            good += overlap(scores > 0, masks.bool()) * len(keys)
        print(f"epoch {epoch}: {seen} samples, overlap {good / seen:.2f}")


if __name__ == "__main__":
    main()
