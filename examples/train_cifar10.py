#!/usr/bin/env python3
"""A dataset of one's own: CIFAR-10 as it is published, a few large files of many pictures each.

    FOREBAY_ENDPOINT=http://127.0.0.1:7400 python train_cifar10.py ais://cifar --generate 500
    FOREBAY_ENDPOINT=http://127.0.0.1:7400 python train_cifar10.py ais://cifar

Put the files of cifar-10-batches-py into the bucket, or have random pictures of the same form made by
`--generate`. A file is a pickled dict, so read only files that you trust.
"""

from __future__ import annotations

import argparse
import pickle
import random
from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.data import DataLoader

import forebay
from forebay_torch import BaseIterDataset

FOLDER = "cifar-10-batches-py"
PARTS = [f"{FOLDER}/data_batch_{number}" for number in range(1, 6)]
CLASSES = 10
Sample = tuple[torch.Tensor, int]


class CIFAR10Dataset(BaseIterDataset):
    """Pictures, uint8 of shape (3, 32, 32), and the numbers of their classes.

    Files are shared by ranks and workers; each is fetched by one of them.
    """

    def __iter__(self) -> Iterator[Sample]:
        self.reset()
        for item in self.worker_objects():
            part = pickle.loads(item.get().read_all(), encoding="bytes")
            pixels = torch.frombuffer(bytearray(part[b"data"]), dtype=torch.uint8)
            yield from zip(pixels.reshape(-1, 3, 32, 32), part[b"labels"], strict=True)


def generate(bucket: forebay.Bucket, count: int) -> None:
    """Stores files of random pictures; those of a class are brighter the higher its number."""
    for part, name in enumerate(PARTS):
        chance = random.Random(part)
        labels = [chance.randrange(CLASSES) for _ in range(count // len(PARTS))]
        data = b"".join(
            bytes(min(255, value // 2 + 12 * label) for value in chance.randbytes(3072))
            for label in labels
        )
        bucket.object(name).put(pickle.dumps({b"data": data, b"labels": labels}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bucket", help="such as ais://cifar")
    parser.add_argument("--generate", type=int, metavar="N", help="first store N random pictures")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()

    bucket, _ = forebay.Client().bucket_of(arguments.bucket)
    if arguments.generate:
        generate(bucket.create(exist_ok=True), arguments.generate)
    dataset = CIFAR10Dataset(bucket, prefix_map={bucket: PARTS}, shuffle=True)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        nn.Linear(8 * 16, CLASSES),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(arguments.epochs):
        dataset.set_epoch(epoch)
        loader = DataLoader(
            dataset, batch_size=arguments.batch_size, num_workers=arguments.workers
        )
        seen, lost = 0, 0.0
        for pictures, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(pictures.float() / 255), labels)
            loss.backward()
            optimizer.step()
            seen += len(labels)
            lost += loss.item() * len(labels)
        print(f"epoch {epoch}: {seen} pictures, loss {lost / seen:.3f}")


if __name__ == "__main__":
    main()
