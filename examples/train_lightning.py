#!/usr/bin/env python3
"""Trains by Lightning on images in a bucket, from the listing to a checkpoint that the next run resumes.

    FOREBAY_ENDPOINT=http://127.0.0.1:7400 python train_lightning.py ais://shapes --generate 480
    FOREBAY_ENDPOINT=http://127.0.0.1:7400 python train_lightning.py ais://shapes --epochs 4

The bucket holds `train/CLASS/NUMBER.jpg` and `val/CLASS/NUMBER.jpg`; `--generate` draws such images.
`gs://`, `s3://` or `az://` instead of `ais://` names a bucket of a cloud. Checkpoints are objects of the
native bucket BUCKET-checkpoints, or of `--checkpoints`. A second run resumes the newest one and trains until
epoch `--epochs`.
"""

from __future__ import annotations

import argparse

import lightning
import make_images
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader
from train_images import Collate, decode, network

import forebay
from forebay_torch import Checkpoint, DistributedShardSampler, MapDataset
from forebay_torch.lightning import LightningCheckpoint

Batch = tuple[torch.Tensor, torch.Tensor]


class Images(lightning.LightningDataModule):
    """Batches of images, uint8 of shape (N, 3, 64, 64), and of class numbers, int64 of shape (N,)."""

    def __init__(self, source: str, batch_size: int, workers: int) -> None:
        super().__init__()
        self.source = source
        self.batch_size = batch_size
        self.workers = workers
        self.collate = Collate(list(make_images.CLASSES))

    def _loader(self, part: str, shuffle: bool) -> DataLoader[Batch]:
        dataset = MapDataset(f"{self.source}/{part}/", data_format_fn=decode, return_name=True)
        sampler = DistributedShardSampler(dataset, shuffle=shuffle)
        return DataLoader(
            dataset,
            batch_size=self.batch_size,
            sampler=sampler,
            num_workers=self.workers,
            collate_fn=self.collate,
        )

    def train_dataloader(self) -> DataLoader[Batch]:
        """The training images, in another order each epoch."""
        return self._loader("train", shuffle=True)

    def val_dataloader(self) -> DataLoader[Batch]:
        """The validation images."""
        return self._loader("val", shuffle=False)


class Classifier(lightning.LightningModule):
    """A small convolutional network that names the shape in an image."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network(len(make_images.CLASSES))
        self.losses: list[torch.Tensor] = []

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Scores of the classes, float32 of shape (N, 6)."""
        scores: torch.Tensor = self.network(images.float() / 127.5 - 1)
        return scores

    def training_step(self, batch: Batch, index: int) -> torch.Tensor:
        images, labels = batch
        loss = nn.functional.cross_entropy(self(images), labels)
        self.losses.append(loss.detach())
        return loss

    def validation_step(self, batch: Batch, index: int) -> None:
        images, labels = batch
        is_right = (self(images).argmax(1) == labels).float()
        self.log("accuracy", is_right.mean(), batch_size=len(labels), sync_dist=True)

    def on_train_epoch_end(self) -> None:
        # A run that resumes ends the epoch of its checkpoint once more, without batches.
        if not self.losses:
            return
        loss = torch.stack(self.losses).mean()
        self.losses.clear()
        # Training that ends at a step leaves out the validation of the epoch.
        accuracy = self.trainer.callback_metrics.get("accuracy", float("nan"))
        if self.trainer.is_global_zero:
            print(
                f"epoch {self.current_epoch}: step {self.global_step}, loss {loss:.3f}, "
                f"accuracy {accuracy:.3f}",
                flush=True,
            )

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def generate(bucket: forebay.Bucket, count: int) -> None:
    """Stores ``count`` training images and a quarter as many validation images."""
    for part, numbers in (("train", range(count)), ("val", range(count, count + count // 4))):
        classes = [make_images.CLASSES[number % len(make_images.CLASSES)] for number in numbers]
        bucket.put_many(
            (f"{part}/{name}/{number:06}.jpg", make_images.draw(name, number))
            for name, number in zip(classes, numbers, strict=True)
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("bucket", help="such as ais://shapes")
    parser.add_argument("--generate", type=int, metavar="N", help="first store N training images")
    parser.add_argument("--checkpoints", help="such as fb://runs/7; fb://BUCKET-checkpoints/run by default")
    parser.add_argument("--epochs", type=int, default=2, help="epoch at which training ends")
    parser.add_argument("--steps", type=int, default=-1, help="step at which training ends, if earlier")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()

    lightning.seed_everything(0, verbose=False)
    client = forebay.Client()
    bucket, _ = client.bucket_of(arguments.bucket)
    if arguments.generate:
        generate(bucket.create(exist_ok=True), arguments.generate)
    # ModelCheckpoint looks at this folder through fsspec, which knows the cluster's buckets as fb://.
    folder = arguments.checkpoints or f"fb://{bucket.name}-checkpoints/run"
    client.bucket_of(folder)[0].create(exist_ok=True)
    newest = Checkpoint(bucket_name=folder, storage_client=client).latest()
    if newest is not None:
        print(f"resumes {folder}/{newest}", flush=True)

    # At the end of an epoch and not after its validation: a resumed run begins with the next epoch.
    saving = ModelCheckpoint(folder, filename="{epoch}-{step}", save_on_train_epoch_end=True)
    trainer = lightning.Trainer(
        plugins=[LightningCheckpoint(storage_client=client)],
        callbacks=[saving],
        max_epochs=arguments.epochs,
        max_steps=arguments.steps,
        num_sanity_val_steps=0,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    data = Images(bucket.uri, arguments.batch_size, arguments.workers)
    trainer.fit(Classifier(), data, ckpt_path=newest and f"{folder}/{newest}")
    if trainer.is_global_zero:
        print(f"newest checkpoint: {saving.best_model_path}")


if __name__ == "__main__":
    main()
