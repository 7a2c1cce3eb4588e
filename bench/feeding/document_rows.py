"""The tables of the documents that Forebay answers, as far as `rows.py` has no row of them yet."""

from __future__ import annotations

from typing import Any

from feeding import boto, ours, roofs, theirs
from feeding.data import KIB
from feeding.reader import Spec
from feeding.rows import BEST, DIRECT, Row, spec

SAMPLED = (1_000, 10_000, 100_000, 1_000_000)
"""Objects of the sampler's rows."""
THROUGH = "/v1/objects/{bucket}/{name}"


def rows(http_count: int) -> list[Row]:
    return [
        hundred(),
        million(http_count),
        shards(),
        *map(sampler, SAMPLED),
        lines(),
        charades(),
        training("resnet", "a small ResNet trained on JPEGs of 100 KiB, batch 32", "images", 32),
        training("bert", "a small BERT trained on lines of 1.6 KB, batch 64", "text", 64),
    ]


def hundred() -> Row:
    of: dict[str, Any] = {"batch": 32}
    return Row(
        "100k-iterable", "100 KiB, iterable, batch 32", "hundred",
        (
            spec("IterableDataset", ours.iterable, **of),
            spec("IterableDataset, zero_copy", ours.iterable, zero_copy=True, **of),
            spec("AISIterDataset", theirs.aistore_iterable, "aistore", **of),
            spec("s3torchconnector", theirs.s3torch_iterable, "minio", **of),
            spec("s3fs", theirs.s3fs_iterable, "minio", **of),
            spec("Dataflux", theirs.dataflux, "gcs", iterable=True, **of),
            spec(DIRECT, theirs.dataflux, "gcs", iterable=True, compose=False, **of),
            spec("loopback copies", roofs.loopback, "", size=100 * KIB),
        ),
        {BEST: 3, DIRECT: 1.9},
    )  # fmt: skip


def million(http_count: int) -> Row:
    """Each side as it reads 10^6 objects of 1 KB; the peer has a part of them."""
    http = {"count": http_count, "path": THROUGH}
    mine = [
        Spec(f"IterableDataset, {number} workers", ours.iterable, "forebay",
             {"batch": 64, "workers": number}, "million")
        for number in (0, 2, 4)
    ]  # fmt: skip
    made = [
        spec(f"AISIterDataset, {number} workers", theirs.aistore_iterable, "aistore",
             batch=64, workers=number)
        for number in (0, 2, 4)
    ]  # fmt: skip
    return Row(
        "workers", "1 KiB, iterable, batch 64, with workers", "small",
        (*mine, *made, spec("HTTP on AIStore", theirs.http, "aistore", **http)),
    )  # fmt: skip


def shards() -> Row:
    of: dict[str, Any] = {"batch": 256, "workers": 4}
    return Row(
        "shards-4", "shards of 1 KiB samples, batch 256, 4 workers", "shards",
        (
            spec("ShardReader", ours.shards, **of),
            spec("AISShardReader", theirs.aistore_shards, "aistore", **of),
            spec("s3torchconnector, tarfile", theirs.s3torch_shards, "minio", **of),
            spec("webdataset, local files", theirs.webdataset, "files", **of),
        ),
    )  # fmt: skip


def sampler(count: int) -> Row:
    of: dict[str, Any] = {"count": count, "size": 1_000, "per_batch": 50}
    return Row(
        f"sampler-{count}", f"batches of 50 kB over {count:,} objects of 1 kB", "",
        (
            spec("DynamicBatchSampler", ours.sampler, "", **of),
            spec("AIStore's sampler", theirs.aistore_sampler, "", **of),
        ),
    )  # fmt: skip


def lines() -> Row:
    of: dict[str, Any] = {"batch": 512, "workers": 4}
    return Row(
        "lines-4", "lines of text of 1.6 KB, batch 512, 4 workers", "text",
        (
            spec("DataPipes", ours.piped_lines, **of),
            spec("BaseIterDataset", ours.lines, **of),
            spec("s3torchconnector", theirs.s3torch_lines, "minio", **of),
            spec("s3fs", theirs.s3fs_lines, "minio", **of),
        ),
    )  # fmt: skip


def charades() -> Row:
    return Row(
        "charades", "ten shards of 150 MiB read whole, one after the other", "charades",
        (
            spec("DataPipes", ours.piped_shards),
            spec("boto3", boto.shards, "minio"),
            spec("s3torchconnector", theirs.s3torch_iterable, "minio", batch=1),
            spec("s3fs", theirs.s3fs_iterable, "minio", batch=1),
        ),
    )  # fmt: skip


def training(model: str, title: str, bucket: str, batch: int) -> Row:
    of: dict[str, Any] = {"batch": batch, "model": model}
    return Row(
        f"train-{model}", title, bucket,
        (
            spec("DataPipes", ours.training, **of),
            spec("boto3", boto.training, "minio", **of),
            spec("batches in memory", roofs.training, "", **of),
        ),
        length=2,
    )  # fmt: skip
