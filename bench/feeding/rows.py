"""The workloads: who reads what, and by how much we are to be faster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from feeding import data, ours, roofs, theirs
from feeding.data import KIB, LINE, MIB
from feeding.reader import Epoch, Spec

BEST = "best peer"
DIRECT = "Dataflux, direct calls"


@dataclass(frozen=True)
class Row:
    """A workload. The first reader is the one whose figures are judged.

    Attributes:
        bucket: The bucket that is read.
        goals: Peer's name, or `BEST` -> how many times as fast as that we are to be.
        compute_s: Seconds that the loop computes for each batch; then the time that it waits counts.
        length: Of its passes, as a multiple of the others'.
        cold: Whether every pass finds the page cache empty.
        memory: Most bytes that the first reader may take; None: no limit is set.
    """

    key: str
    title: str
    bucket: str
    readers: tuple[Spec, ...]
    goals: dict[str, float] = field(default_factory=dict)
    compute_s: float = 0.0
    length: float = 1.0
    cold: bool = False
    memory: float | None = None


def spec(name: str, make: Callable[..., Epoch], server: str = "forebay", **options: Any) -> Spec:
    return Spec(name, make, server, options)


def rows(known: dict[str, data.Data]) -> list[Row]:
    # A module of its own, which uses the names of this one.
    from feeding import document_rows

    first = [*small(), *middle(), *large(), images(), *shards_and_lines(), *others(known)]
    return [*first, *document_rows.rows(known["small"].count)]


def small() -> list[Row]:
    of: dict[str, Any] = {"batch": 64}
    return [
        Row(
            "1k-map", "1 KiB, map style, shuffled, batch 64, workers 0", "small",
            (
                spec("MapDataset, ThreadLoader 0", ours.map_style, threads=0, **of),
                spec("MapDataset", ours.map_style, **of),
                spec("MapDataset, ThreadLoader 2", ours.map_style, threads=2, **of),
                spec("AIStore get-batch", theirs.aistore_map, "aistore", get_batch=True, **of),
                spec("AISMapDataset", theirs.aistore_map, "aistore", **of),
                spec("s3torchconnector", theirs.s3torch_map, "minio", **of),
                spec("s3fs", theirs.s3fs_map, "minio", **of),
                spec("Dataflux", theirs.dataflux, "gcs", **of),
                spec("DataLoader, ready bytes", roofs.ready_map, "", size=KIB, **of),
            ),
            {BEST: 25},
        ),
        Row(
            "1k-iterable", "1 KiB, iterable, batch 64", "small",
            (
                spec("IterableDataset, ThreadLoader 0", ours.iterable, threads=0, **of),
                spec("IterableDataset", ours.iterable, **of),
                spec("BatchIterDataset", ours.batch_iterable, most=2048, **of),
                spec("BatchIterDataset, ThreadLoader 2", ours.batch_iterable, most=2048, threads=2,
                     **of),
                spec("AISBatchIterDataset", theirs.aistore_batches, "aistore", most=64, **of),
                spec("AISIterDataset", theirs.aistore_iterable, "aistore", **of),
                spec("s3torchconnector", theirs.s3torch_iterable, "minio", **of),
                spec("Dataflux", theirs.dataflux, "gcs", iterable=True, **of),
                spec("DataLoader, ready bytes", roofs.ready_iterable, "", size=KIB, **of),
            ),
            {"AISBatchIterDataset": 40, "AISIterDataset": 500},
        ),
    ]  # fmt: skip


def middle() -> list[Row]:
    of: dict[str, Any] = {"batch": 32}
    size = 100 * KIB
    return [
        Row(
            "100k-map", "100 KiB, map style, shuffled, batch 32", "hundred",
            (
                spec("MapDataset", ours.map_style, **of),
                spec("MapDataset, zero_copy", ours.map_style, zero_copy=True, **of),
                spec("MapDataset, ThreadLoader 2", ours.map_style, threads=2, **of),
                spec("AISMapDataset", theirs.aistore_map, "aistore", **of),
                spec("AIStore get-batch", theirs.aistore_map, "aistore", get_batch=True, **of),
                spec("s3torchconnector", theirs.s3torch_map, "minio", **of),
                spec("s3torchconnector, 2 workers", theirs.s3torch_map, "minio", workers=2, **of),
                spec("s3fs", theirs.s3fs_map, "minio", **of),
                spec("Dataflux", theirs.dataflux, "gcs", **of),
                spec(DIRECT, theirs.dataflux, "gcs", compose=False, **of),
                spec("loopback copies", roofs.loopback, "", size=size),
            ),
            {BEST: 3, DIRECT: 2.5},
        )
    ]  # fmt: skip


# bucket, size, batch, and what is to be reached over Dataflux's direct calls: map style, iterable
LARGE_OBJECT_CASES = (
    ("half", 500 * KIB, 32, 3.2, 2.1),
    ("three", 3 * MIB, 8, 1.4, 1.1),
    ("large", 150 * MIB, 1, 1.2, 1.1),
)

def large() -> list[Row]:
    made = []
    for bucket, size, batch, by_map, by_iterable in LARGE_OBJECT_CASES:
        of: dict[str, Any] = {"batch": batch}
        name = f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"
        key = name.replace(" ", "").replace("iB", "").lower()
        roof = spec("loopback copies", roofs.loopback, "", size=size)
        made.append(
            Row(
                f"{key}-map", f"{name}, map style, shuffled, batch {batch}", bucket,
                (
                    spec("MapDataset, zero_copy", ours.map_style, zero_copy=True, **of),
                    spec("MapDataset", ours.map_style, **of),
                    spec("AISMapDataset", theirs.aistore_map, "aistore", **of),
                    spec("s3torchconnector", theirs.s3torch_map, "minio", **of),
                    spec("s3fs", theirs.s3fs_map, "minio", **of),
                    spec("Dataflux", theirs.dataflux, "gcs", **of),
                    spec(DIRECT, theirs.dataflux, "gcs", compose=False, **of),
                    roof,
                ),
                {BEST: 1.5, DIRECT: by_map},
                memory=1.2 * batch * size,
            )
        )  # fmt: skip
        made.append(
            Row(
                f"{key}-iterable", f"{name}, iterable, batch {batch}", bucket,
                (
                    spec("IterableDataset, zero_copy", ours.iterable, zero_copy=True, **of),
                    spec("IterableDataset", ours.iterable, **of),
                    spec("AISIterDataset", theirs.aistore_iterable, "aistore", **of),
                    spec("s3torchconnector", theirs.s3torch_iterable, "minio", **of),
                    spec("s3fs", theirs.s3fs_iterable, "minio", **of),
                    spec("Dataflux", theirs.dataflux, "gcs", iterable=True, **of),
                    spec(DIRECT, theirs.dataflux, "gcs", iterable=True, compose=False, **of),
                    roof,
                ),
                {BEST: 1.5, DIRECT: by_iterable},
                memory=1.2 * batch * size,
            )
        )  # fmt: skip
    return made


def images() -> Row:
    of: dict[str, Any] = {"batch": 32, "decode": True}
    return Row(
        "jpeg", "100 KiB JPEG decoded to tensors, batch 32, from the disk", "images",
        (
            spec("MapDataset, ThreadLoader 2", ours.map_style, threads=2, **of),
            spec("MapDataset", ours.map_style, **of),
            spec("MapDataset, 2 workers", ours.map_style, workers=2, **of),
            spec("AISMapDataset, 2 workers", theirs.aistore_map, "aistore", workers=2, **of),
            spec("s3torchconnector", theirs.s3torch_map, "minio", **of),
            spec("s3torchconnector, 2 workers", theirs.s3torch_map, "minio", workers=2, **of),
            spec("s3fs", theirs.s3fs_map, "minio", **of),
            spec("Dataflux, 2 workers", theirs.dataflux, "gcs", workers=2, **of),
            spec("decoding alone, 2 workers", roofs.ready_images, "", batch=32, workers=2),
        ),
        {BEST: 1.5},
        length=2,
        cold=True,
    )  # fmt: skip


def shards_and_lines() -> list[Row]:
    of: dict[str, Any] = {"batch": 256}
    lines: dict[str, Any] = {"batch": 512}
    return [
        Row(
            "shards", "shards of 1 KiB samples, batch 256", "shards",
            (
                spec("ShardReader, ThreadLoader 0", ours.shards, threads=0, **of),
                spec("ShardReader", ours.shards, **of),
                spec("ShardReader, ThreadLoader 2", ours.shards, threads=2, **of),
                spec("ShardMapDataset, shuffled", ours.shards, by_number=True, **of),
                spec("AISShardReader", theirs.aistore_shards, "aistore", **of),
                spec("s3torchconnector, tarfile", theirs.s3torch_shards, "minio", **of),
                spec("s3torchconnector, tarfile, 2 workers", theirs.s3torch_shards, "minio",
                     workers=2, **of),
                spec("webdataset, local files", theirs.webdataset, "files", **of),
                spec("DataLoader, ready samples", roofs.ready_shards, "", size=KIB, **of),
                spec("tarfile, in memory", roofs.tar_in_memory, "", size=KIB),
            ),
            {BEST: 10, "webdataset, local files": 1},
        ),
        Row(
            "lines", "lines of text of 1.6 KB, batch 512", "text",
            (
                spec("BaseIterDataset", ours.lines, **lines),
                spec("BaseIterDataset, ThreadLoader 2", ours.lines, threads=2, **lines),
                spec("DataPipes", ours.piped_lines, **lines),
                spec("AISBaseIterDataset", theirs.aistore_lines, "aistore", **lines),
                spec("s3torchconnector", theirs.s3torch_lines, "minio", **lines),
                spec("s3fs", theirs.s3fs_lines, "minio", **lines),
                spec("DataLoader, ready lines", roofs.ready_lines, "", size=LINE, **lines),
                spec("DataLoader, lines sent by a process", roofs.sent_lines, "", size=LINE, **lines),
            ),
            {BEST: 5},
        ),
    ]  # fmt: skip


def others(known: dict[str, data.Data]) -> list[Row]:
    million = known["million"].count
    of: dict[str, Any] = {"batch": 32}
    through = "/v1/objects/{bucket}/{name}"
    return [
        Row(
            "listing", "names and sizes listed", "million",
            (
                spec("list_snapshot", ours.listing),
                Spec("AIStore's SDK", theirs.aistore_listing, "aistore", {}, "small"),
                Spec("s3torchconnector", theirs.s3torch_listing, "minio", {}, "small"),
                Spec("s3fs", theirs.s3fs_listing, "minio", {}, "small"),
                Spec("Dataflux", theirs.dataflux_listing, "gcs", {}, "small"),
            ),
            {BEST: 20},
        ),
        Row(
            "sampler", "batches by size over objects of 50 kB, shuffled", "",
            (
                spec("DynamicBatchSampler", ours.sampler, "", count=1_000_000, size=50_000),
                spec("AIStore's sampler", theirs.aistore_sampler, "", count=100_000, size=50_000),
            ),
            {},
        ),
        Row(
            "headline", f"{million:,} objects of 1 KiB against HTTP in one thread", "million",
            (
                spec("batches of 1000", ours.by_batches, most=1000),
                Spec("shards", ours.by_shards, "forebay", {}, "shards"),
                Spec("HTTP on AIStore", theirs.http, "aistore",
                     {"count": known["small"].count, "path": through}, "small"),
                spec("HTTP on Forebay", theirs.http, count=million, path=through),
                Spec("HTTP on MinIO", theirs.http, "minio",
                     {"count": known["small"].count}, "small"),
            ),
            {"HTTP on AIStore": 300},
        ),
        Row(
            "consumer", "waits of a loop that computes 20 ms per batch, 32 × 100 KiB", "hundred",
            (
                spec("MapDataset, ThreadLoader 2", ours.map_style, threads=2, **of),
                spec("MapDataset, 2 workers", ours.map_style, workers=2, **of),
                spec("AISMapDataset, 2 workers", theirs.aistore_map, "aistore", workers=2, **of),
                spec("s3torchconnector, 2 workers", theirs.s3torch_map, "minio", workers=2, **of),
            ),
            compute_s=0.02,
            length=3,
        ),
    ]  # fmt: skip


WORKERS = (0, 1, 2, 4, 8)


Making = Callable[[str, int], Spec]
"""A reader of this name with so many processes or threads."""


def plotted() -> dict[str, tuple[str, dict[str, Making]]]:
    """For the plot: class -> bucket, and readers with processes (`workers`) and with threads."""

    def of(
        make: Callable[..., Epoch], bucket: str, **options: Any
    ) -> tuple[str, dict[str, Making]]:
        def making(kind: str) -> Making:
            return lambda name, number: Spec(name, make, "forebay", {kind: number, **options})

        return bucket, {kind: making(kind) for kind in ("workers", "threads")}

    return {
        "MapDataset": of(ours.map_style, "hundred", batch=32),
        "IterableDataset": of(ours.iterable, "hundred", batch=32),
        "BatchIterDataset": of(ours.batch_iterable, "hundred", batch=32, most=64),
        "ShardReader": of(ours.shards, "shards", batch=256),
        "ShardMapDataset": of(ours.shards, "shards", batch=256, by_number=True),
    }
