"""Figures of the documents that Forebay answers, by row, and why a scale is smaller here.

The keys are those of rows; the values are arguments of `Row`. Reasons are printed for runs in which a
peer is ahead.
"""

from __future__ import annotations

from typing import Any

from compare.row import Seed
from feeding.rows import DIRECT

Said = dict[str, Any]

CONNECTOR = "Connector for PyTorch, README"
AISTORE = "Accelerating AI Workloads with AIStore and PyTorch"
DATAPIPES = "CPP-based S3 IO DataPipes"
ONE_MACHINE = "one machine, servers on loopback, memory and disk shared by all peers"
SCALED = f"a rate instead of 5 epochs of {{}} files: {ONE_MACHINE}"


def dataflux(direct: float, connector: float, files: str, style: str) -> Said:
    """A row of the connector's two tables: training time in seconds."""
    figure = f"{direct:,} s by direct calls, {connector:,} s by the {style} dataset"
    seed = Seed(figure, CONNECTOR, DIRECT, round(direct / connector, 2))
    return {"seed": seed, "scale": SCALED.format(files)}


MAP, ITERABLE = "map-style", "iterable-style"
FEEDING: dict[str, Said] = {
    "1k-map": {"headline": True},
    "1k-iterable": {
        "headline": True,
        "seed": Seed(
            "10^6 objects of 1 KB; AISIterDataset and AISShardReader up to 8 x plain HTTP", AISTORE,
            "AISIterDataset", None,
        ),
        "scale": "a rate over 10,000 objects: AIStore and MinIO take minutes to be filled with 10^6",
    },
    "100k-map": {"headline": True} | dataflux(1_299, 515, "500,000", MAP),
    "100k-iterable": dataflux(1_145, 611, "500,000", ITERABLE),
    "500k-map": dataflux(6_499, 2_058, "2.2 million", MAP),
    "500k-iterable": dataflux(5_174, 2_503, "2.2 million", ITERABLE),
    "3m-map": dataflux(399, 277, "50,000", MAP),
    "3m-iterable": dataflux(413, 384, "50,000", ITERABLE),
    "150m-map": dataflux(1_396, 1_173, "5,000", MAP),
    "150m-iterable": dataflux(1_225, 1_143, "5,000", ITERABLE),
    "shards": {"headline": True},
    "shards-4": {
        "seed": Seed("AISShardReader with workers, a chart without figures", AISTORE, "AISShardReader"),
        "scale": "20 shards of 10,000 samples",
    },
    "workers": {
        "seed": Seed(
            "10^6 objects of 1 KB by HTTP, and by AISIterDataset with workers: charts, up to 8 x", AISTORE,
            "HTTP on AIStore", 8.0,
        ),
        "scale": "300,000 objects in Forebay, 10,000 in AIStore, which takes minutes to be filled",
    },
    "headline": {
        "seed": Seed("10^6 objects of 1 KB: up to 8 x HTTP in one thread", AISTORE, "HTTP on AIStore", 8.0),
        "scale": "300,000 objects in Forebay, 10,000 in AIStore, which takes minutes to be filled",
    },
    "lines": {
        "headline": True,
        "seed": Seed("S3FileLoader 90 % faster than fsspec, batch 512, 0 workers", DATAPIPES, "s3fs", 1.9),
        "scale": "texts of 16 MiB instead of 156 MB",
    },
    "lines-4": {
        "seed": Seed("S3FileLoader 59.8 % faster than fsspec, 4 workers", DATAPIPES, "s3fs", 1.6),
        "scale": "texts of 16 MiB instead of 156 MB; 2 cores for 4 workers and the servers",
    },
    "charades": {
        "seed": Seed("ten shards of 1.5 GiB: 3.5 x the first S3 plugin", DATAPIPES, "boto3", 3.5),
        "scale": "ten shards of 150 MiB: all servers keep a copy on one disk; boto3 stands for the plugin",
    },
    "train-resnet": {
        "seed": Seed("ResNet50, 32 GPUs, 8 epochs: 7.5 % faster than boto3", DATAPIPES, "boto3", 1.075),
        "scale": "a model of three layers on a CPU, 1,500 JPEGs: there is no GPU in this run",
        "reason": "The step on a CPU takes most of the time, so reading decides little.",
    },
    "train-bert": {
        "seed": Seed("BERT, 32 GPUs, one epoch: 7 % faster than boto3", DATAPIPES, "boto3", 1.07),
        "scale": "a model of two layers on a CPU, 16 texts: there is no GPU in this run",
        "reason": "The step on a CPU takes most of the time, so reading decides little.",
    },
} | {
    f"sampler-{count}": {"seed": Seed(f"{seconds} s", AISTORE, "AIStore's sampler")}
    for count, seconds in ((1_000, 0.0236), (10_000, 0.3045), (100_000, 3.0336), (1_000_000, 30.135))
}

# Bytes -> seconds without and with the connector: saving, loading.
CHECKPOINT_SECONDS = {
    75_600_000: ((0.81, 0.56), (2.38, 0.51)),
    298_000_000: ((2.87, 1.03), (1.69, 1.03)),
    2_500_000_000: ((25.61, 6.25), (186.57, 14.77)),
    24_200_000_000: ((757.10, 64.50), (2_093.52, 113.14)),
}


def checkpoint(without: float, connector: float) -> Said:
    figure = f"{without:,} s without the connector, {connector:,} s with it"
    seed = Seed(figure, CONNECTOR, "s3fs", round(without / connector, 1))
    return {"seed": seed, "scale": f"a state of tensors, {ONE_MACHINE}"}


CHECKPOINTS: dict[tuple[int, str], Said] = {
    (size, what): checkpoint(*pair) | {"headline": size == 298_000_000}
    for size, pairs in CHECKPOINT_SECONDS.items()
    for what, pair in zip(("save", "load"), pairs, strict=True)
}

BATCHES: dict[str, Said] = {"batches/1k": {"headline": True}, "batches/members": {"headline": True}}
UNCHECKED = "Forebay compares {} with checksums, which nginx does not have"
STORE: dict[str, Said] = {
    "store/get-1k": {
        "reason": f"{UNCHECKED.format('all bytes')}, and looks at the grant of each request.",
    },
    "store/get-1m": {"reason": f"{UNCHECKED.format('each MiB, at least every ten seconds,')}."},
    "store/get-64m": {"reason": f"{UNCHECKED.format('each MiB, at least every ten seconds,')}."},
    "store/s3-8m-gateway": {"reason": "A gateway copies through user space; the owner sends files."},
}
CLOUDS: dict[str, Said] = {
    "clouds/cold-aws": {"headline": True},
    "clouds/cold-gcp": {
        "seed": Seed("up to 3.5 x fsspec with small files", "Introducing Dataflux Dataset",
                     "gcsfs, 16 at once", 3.5),
        "scale": "3,000 objects of fake-gcs-server behind a proxy that adds 30 ms",
    },
    "clouds/composed": {
        "seed": Seed("composed objects of up to 100 MB, on by default", CONNECTOR),
        "scale": "an emulator; `python bench/compare/composed.py gs://BUCKET` measures a real bucket",
    },
}  # fmt: skip
