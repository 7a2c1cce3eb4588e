"""How each system reads a training workload: with as many threads or workers as DLIO has."""

from __future__ import annotations

from typing import Any

from feeding import samples, theirs
from feeding.reader import Epoch, Spec
from mlperf.workloads import Training


def forebay(endpoint: str, bucket: str, batch: int, threads: int) -> Epoch:
    """Our MapDataset over a bucket of S3, shuffled, in a ThreadLoader."""
    from forebay import Client
    from forebay_torch import MapDataset, ThreadLoader

    dataset = MapDataset(Client(endpoint).bucket(bucket, "aws"), zero_copy=True, return_name=True)
    loader = ThreadLoader(dataset, batch_size=batch, shuffle=True, threads=threads)
    return lambda: samples.of_pairs(loader)


def s3torchconnector(endpoint: str, bucket: str, batch: int, threads: int) -> Epoch:
    """S3MapDataset, shuffled, in torch's DataLoader; `threads` are its workers."""
    return theirs.s3torch_map(endpoint, bucket, batch, workers=threads, collate=samples.shared)


def aistore(endpoint: str, bucket: str, batch: int, threads: int) -> Epoch:
    """AISMapDataset over a bucket of S3, shuffled, in torch's DataLoader."""
    from aistore.pytorch import AISMapDataset
    from aistore.sdk import Client

    dataset = AISMapDataset(Client(endpoint).bucket(bucket, "aws"))
    loader = samples.data_loader(dataset, batch, threads, shuffle=True, collate=samples.shared)
    return lambda: samples.of_pairs(loader)


OURS = "Forebay, MapDataset"


def specs(workload: Training) -> list[Spec]:
    """All readers of a workload; the first one is ours."""
    options: dict[str, Any] = {"batch": workload.batch_size, "threads": workload.read_threads}
    return [
        Spec(OURS, forebay, "forebay", options),
        Spec("s3torchconnector on MinIO", s3torchconnector, "minio", options),
        Spec("AIStore, AISMapDataset", aistore, "aistore", options),
    ]
