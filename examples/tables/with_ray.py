"""A data set of Ray Data over a bucket: blocks are read and written by tasks of Ray.

    FOREBAY_ENDPOINT=http://127.0.0.1:7400 python examples/tables/with_ray.py fb://bucket/ray
"""

from __future__ import annotations

import sys

import fsspec
import ray


def main(folder: str) -> None:
    filesystem, path = fsspec.url_to_fs(folder)
    ray.init(num_cpus=2, include_dashboard=False, configure_logging=False)
    try:
        ray.data.range(1000).write_parquet(path, filesystem=filesystem)
        read = ray.data.read_parquet(path, filesystem=filesystem)
        print(f"{read.count()} rows with the sum {read.sum('id')}")
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1].rstrip("/"))
