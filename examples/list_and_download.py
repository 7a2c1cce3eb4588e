#!/usr/bin/env python3
"""How fast a bucket is listed and downloaded through a loader, epoch by epoch.

    FOREBAY_ENDPOINT=http://127.0.0.1:7400 python list_and_download.py ais://images/train/
    FOREBAY_ENDPOINT=http://127.0.0.1:7400 python list_and_download.py gs://data --iterable --epochs 3

The first epoch of a bucket in a cloud is cold, the others come from the cluster.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from torch.utils.data import DataLoader

from forebay_torch import IterableDataset, MapDataset, ThreadLoader, collate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", help="bucket, or bucket and prefix, such as ais://images/train/")
    parser.add_argument("--iterable", action="store_true", help="read by an iterable dataset")
    parser.add_argument("--threads", type=int, default=0, help="threads instead of workers")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=2)
    arguments = parser.parse_args()

    started = time.perf_counter()
    dataset: Any = (IterableDataset if arguments.iterable else MapDataset)(arguments.source)
    took = time.perf_counter() - started
    count = len(dataset)
    print(f"listed {count} objects, {dataset.objects.total_size} bytes, in {took:.3f} s")
    options: dict[str, Any] = {"batch_size": arguments.batch_size, "collate_fn": collate}
    if not arguments.iterable:
        options["shuffle"] = True
    loader: Any = (
        ThreadLoader(dataset, threads=arguments.threads, **options)
        if arguments.threads
        else DataLoader(dataset, num_workers=arguments.workers, **options)
    )
    for epoch in range(arguments.epochs):
        started = time.perf_counter()
        objects = size = 0
        for batch in loader:
            objects += len(batch)
            size += len(batch.data)
        took = time.perf_counter() - started
        print(
            f"epoch {epoch}: {objects} objects, {size} bytes, {objects / took:.0f} objects/s, "
            f"{size / took / 1e6:.1f} MB/s"
        )


if __name__ == "__main__":
    main()
