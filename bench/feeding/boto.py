"""How a training reads by boto3, on MinIO: the loaders that the documents compare theirs with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from feeding import samples
from feeding.reader import Counts, Epoch


def client_of(endpoint: str) -> Any:
    from peers import minio_client

    return minio_client(int(endpoint.rpartition(":")[2]))


def names_of(client: Any, bucket: str) -> list[str]:
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    return [entry["Key"] for page in pages for entry in page.get("Contents", ())]


def contents(endpoint: str, bucket: str) -> Iterator[bytes]:
    client = client_of(endpoint)
    for name in names_of(client, bucket):
        yield client.get_object(Bucket=bucket, Key=name)["Body"].read()


def lines(endpoint: str, bucket: str) -> Iterator[bytes]:
    for content in contents(endpoint, bucket):
        yield from content.splitlines()


def loaded(endpoint: str, bucket: str, batch: int, of_lines: bool) -> Any:
    from torch.utils.data import IterableDataset

    class Objects(IterableDataset[Any]):
        def __iter__(self) -> Iterator[bytes]:
            return (lines if of_lines else contents)(endpoint, bucket)

    return samples.data_loader(Objects(), batch)


def training(endpoint: str, bucket: str, batch: int, model: str) -> Epoch:
    """A model trained on what boto3 reads, object by object."""
    from feeding.models import MODELS, trained

    step = MODELS[model]()
    loader = loaded(endpoint, bucket, batch, model == "bert")
    return lambda: trained(loader, step)


def shards(endpoint: str, bucket: str) -> Epoch:
    """Whole shards, one after the other."""

    def epoch() -> Iterator[Counts]:
        for content in contents(endpoint, bucket):
            yield 1, len(content)

    return epoch
