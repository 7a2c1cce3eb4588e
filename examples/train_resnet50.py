#!/usr/bin/env python3
"""Trains ResNet-50 on shards that `forebay ishard` packs from the images of a bucket.

    FOREBAY_ENDPOINT=http://127.0.0.1:7400 python train_resnet50.py ais://shapes --generate 960
    FOREBAY_ENDPOINT=http://127.0.0.1:7400 python train_resnet50.py ais://shapes --steps 100

The bucket holds `train/CLASS/NUMBER.jpg`; `--generate` draws such images. If the bucket BUCKET-shards is
missing, the program has the cluster pack the images into it: a job of the targets, which sends no image
through this machine. An epoch reads each shard once as a stream. Needs torchvision, and the program
`forebay`.
"""

from __future__ import annotations

import argparse
import subprocess
import time

import make_images
import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader
from train_images import Collate, pixels_of_jpg

import forebay
from forebay.local import find_binary
from forebay_torch import ShardReader


def generate(bucket: forebay.Bucket, count: int) -> None:
    """Stores ``count`` images."""
    classes = [make_images.CLASSES[number % len(make_images.CLASSES)] for number in range(count)]
    bucket.put_many(
        (f"train/{name}/{number:06}.jpg", make_images.draw(name, number))
        for number, name in enumerate(classes)
    )


def pack(images: forebay.Bucket, shards: forebay.Bucket, samples: int) -> None:
    """Packs the images into shards of ``samples`` samples each, in a random order.

    Raises:
        FileNotFoundError: The program ``forebay`` is missing.
        CalledProcessError: The job failed.
    """
    command = [
        str(find_binary()), "--endpoint", images.client.endpoint, "ishard",
        f"{images.uri}/train/", shards.uri, "--create", "--wait", "--quiet",
        "--size", str(samples), "--key", "full_name", "--sort", "shuffle:7",
    ]  # fmt: skip
    # Its summary of the job goes to stdout, what went wrong to stderr.
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("bucket", help="such as ais://shapes")
    parser.add_argument("--generate", type=int, metavar="N", help="first store N images")
    parser.add_argument("--shard-samples", type=int, default=1000, help="images in a shard")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, help="step at which training ends, if earlier")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()

    client = forebay.Client()
    bucket, _ = client.bucket_of(arguments.bucket)
    shards = client.bucket(f"{bucket.name}-shards")
    if arguments.generate:
        generate(bucket.create(exist_ok=True), arguments.generate)
    if shards not in client.buckets("ais"):
        pack(bucket, shards, arguments.shard_samples)

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = torchvision.models.resnet50(num_classes=len(make_images.CLASSES)).to(device)
    # 0.1 for a batch of 256, as ResNet was published, and in proportion for others.
    learning_rate = 0.1 * arguments.batch_size / 256
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9)
    reader = ShardReader(
        shards,
        shuffle_shards=True,
        shuffle_buffer=1000,
        decode=pixels_of_jpg,
        batch_size=arguments.batch_size,
        client=client,
    )
    print(f"{len(reader)} samples in {len(reader.objects)} shards", flush=True)
    step = 0
    for epoch in range(arguments.epochs):
        reader.set_epoch(epoch)
        loader = DataLoader(
            reader,
            batch_size=arguments.batch_size,
            num_workers=arguments.workers,
            collate_fn=Collate(list(make_images.CLASSES)),
        )
        begin, samples, loss_sum = time.perf_counter(), 0, 0.0
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            loss = nn.functional.cross_entropy(model(images.float() / 127.5 - 1), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            samples += len(labels)
            loss_sum += loss.item() * len(labels)
            if step == arguments.steps:
                break
        rate = samples / (time.perf_counter() - begin)
        print(
            f"epoch {epoch}: step {step}, {samples} samples, {rate:.1f} samples/s, "
            f"loss {loss_sum / samples:.3f}",
            flush=True,
        )
        if step == arguments.steps:
            break


if __name__ == "__main__":
    main()
