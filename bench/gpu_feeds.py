"""Data of `bench/gpu.py`, and the loaders that feed its training loop.

Each loader makes batches of `BATCH` samples; `Feed.pair` makes images (uint8) and numbers (int64) of one.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

import forebay
from forebay_torch import MapDataset, ShardReader, ThreadLoader, collate

SIDE = 224
RAW_BYTES = SIDE * SIDE * 3
CLASSES = 16
THREADS_RAW = 4
"""Threads of a ThreadLoader whose samples need no decoding: its default."""
TRANSFORM = v2.Compose(
    [v2.RandomResizedCrop(SIDE, antialias=True), v2.RandomHorizontalFlip(), v2.PILToTensor()]
)


@dataclass(frozen=True)
class Shape:
    """How much data there is, and how it is read."""

    samples: int
    shard_samples: int
    batch: int
    workers: int


def jpeg(number: int) -> bytes:
    """An image of 256 to 500 pixels a side and about 110 KB: noise over a gradient."""
    chosen = numpy.random.default_rng(number)
    width, height = (int(side) for side in chosen.integers(256, 501, 2))
    noise = chosen.integers(-46, 47, (height, width, 3), dtype=numpy.int16)
    slope = numpy.linspace(50, 200, width, dtype=numpy.int16)[None, :, None]
    packed = io.BytesIO()
    Image.fromarray((slope + noise).astype(numpy.uint8)).save(packed, "JPEG", quality=94)
    return packed.getvalue()


def raw(number: int) -> bytes:
    """A decoded image: height, width and channels of 8 bits."""
    return numpy.random.default_rng(number).bytes(RAW_BYTES)


def _write_shard(folder: Path, shard: int, samples: int) -> tuple[int, dict[int, int]]:
    """Writes the samples of a shard as files and as TARs; returns the bytes of the JPEGs, and the sum of
    the bytes of each raw sample by its number."""
    size, sums = 0, {}
    for kind, make in (("jpg", jpeg), ("raw", raw)):
        with tarfile.open(folder / f"{kind}-shards/{shard:04}.tar", "w") as archive:
            for number in range(shard * samples, (shard + 1) * samples):
                content = make(number)
                member = tarfile.TarInfo(f"{number:06}.{kind}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
                (folder / kind / f"{number % CLASSES:02}/{number:06}.{kind}").write_bytes(content)
                if kind == "raw":
                    sums[number] = int(numpy.frombuffer(content, numpy.uint8).sum())
                else:
                    size += len(content)
    return size, sums


def write(folder: Path, shape: Shape) -> tuple[float, torch.Tensor]:
    """Writes all samples; returns the mean bytes of a JPEG, and the sum of the bytes of each raw sample."""
    for kind in ("jpg", "raw"):
        (folder / f"{kind}-shards").mkdir()
        for number in range(CLASSES):
            (folder / kind / f"{number:02}").mkdir(parents=True)
    shards = range(shape.samples // shape.shard_samples)
    with multiprocessing.Pool(shape.workers) as pool:
        written = pool.starmap(_write_shard, [(folder, n, shape.shard_samples) for n in shards])
    sums = {number: total for _, of_shard in written for number, total in of_shard.items()}
    size = sum(size for size, _ in written)
    return size / shape.samples, torch.tensor([sums[n] for n in range(shape.samples)])


def number_of(name: str) -> int:
    """The number in the name of a file, an object or a sample."""
    return int(os.path.basename(name).partition(".")[0])


def augmented(content: Any) -> torch.Tensor:
    """A JPEG decoded, cropped at random and flipped: uint8 of shape (3, SIDE, SIDE)."""
    with Image.open(io.BytesIO(content)) as image:
        made: torch.Tensor = TRANSFORM(image.convert("RGB"))
    return made


def augmented_sample(key: str, fields: Any) -> torch.Tensor:
    return augmented(fields["jpg"])


def raw_sample(key: str, fields: Any) -> torch.Tensor:
    return torch.frombuffer(bytearray(fields["raw"]), dtype=torch.uint8)


class Images(ImageFolder):  # type: ignore[misc]
    """torchvision's dataset of a folder, with the numbers of its samples instead of classes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder), TRANSFORM)

    def __getitem__(self, index: int) -> tuple[str, Any]:
        return self.samples[index][0], super().__getitem__(index)[0]


class RawFiles(Dataset[Any]):
    """Files of a folder, as they are."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(map(str, folder.glob("*/*.raw")))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[str, torch.Tensor]:
        return self.paths[index], torch.from_numpy(numpy.fromfile(self.paths[index], numpy.uint8))


Pair = tuple[torch.Tensor, torch.Tensor]


def named(batch: Any) -> Pair:
    """Of a batch of names and tensors."""
    names, images = batch
    return images, torch.tensor([number_of(name) for name in names])


def block(batch: Any) -> Pair:
    """Of a ByteBatch of raw samples."""
    return batch.data, torch.tensor([number_of(name) for name in batch.names])


@dataclass(frozen=True)
class Feed:
    """A loader of the training loop, and the data that it reads.

    Attributes:
        kind: `jpg` or `raw`.
        make: Makes a loader of one epoch.
        bucket: The bucket that it reads; None if it reads files.
    """

    name: str
    kind: str
    make: Callable[[], Iterable[Any]]
    bucket: forebay.Bucket | None = None
    pair: Callable[[Any], Pair] = named


def feeds(client: forebay.Client, folder: Path, shape: Shape) -> list[Feed]:
    """All feeds; the buckets are windows on the folders of the data."""

    @cache
    def bucket(name: str) -> forebay.Bucket:
        return client.bucket(name).create(folder=str(folder / name))

    common: dict[str, Any] = {"batch_size": shape.batch, "pin_memory": True}
    workers: dict[str, Any] = {**common, "num_workers": shape.workers}

    def processes(dataset: Any, **more: Any) -> Any:
        return lambda: DataLoader(dataset, **workers, **more)

    def threads(dataset: Any, count: int, **more: Any) -> Any:
        return lambda: ThreadLoader(dataset, threads=count, **common, **more)

    def shards(kind: str, decode: Any) -> ShardReader:
        return ShardReader(bucket(f"{kind}-shards"), shuffle_shards=True, decode=decode, batch_size=shape.batch)

    images = MapDataset(bucket("jpg"), data_format_fn=augmented, return_name=True, zero_copy=True)
    blocks = MapDataset(bucket("raw"), zero_copy=True)
    shuffled = {"shuffle": True}
    joined = {"shuffle": True, "collate_fn": collate}
    return [
        Feed("ImageFolder", "jpg", processes(Images(folder / "jpg"), **shuffled)),
        Feed("MapDataset", "jpg", processes(images, **shuffled), bucket("jpg")),
        Feed("ShardReader", "jpg", processes(shards("jpg", augmented_sample)), bucket("jpg-shards")),
        Feed("MapDataset, ThreadLoader", "jpg", threads(images, shape.workers, **shuffled), bucket("jpg")),
        Feed("files", "raw", processes(RawFiles(folder / "raw"), **shuffled)),
        Feed("MapDataset", "raw", processes(blocks, **joined), bucket("raw"), block),
        Feed("ShardReader", "raw", processes(shards("raw", raw_sample)), bucket("raw-shards")),
        Feed("MapDataset, ThreadLoader", "raw", threads(blocks, THREADS_RAW, **joined), bucket("raw"), block),
    ]
