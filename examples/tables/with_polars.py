"""Frames of polars in a bucket: written to a file, and scanned lazily by pyarrow's data sets.

Polars reads URLs of S3 by itself, from the gateway's S3 front too; see docs/s3.md.

    FOREBAY_ENDPOINT=http://127.0.0.1:7400 python examples/tables/with_polars.py fb://bucket/polars
"""

from __future__ import annotations

import sys

import fsspec
import polars as pl
import pyarrow.dataset as ds


def main(folder: str) -> None:
    filesystem, path = fsspec.url_to_fs(folder)
    for part in range(3):
        frame = pl.DataFrame({"id": range(part * 1000, part * 1000 + 1000)})
        with filesystem.open(f"{path}/{part}.parquet", "wb") as file:
            frame.write_parquet(file)
    scan = pl.scan_pyarrow_dataset(ds.dataset(path, filesystem=filesystem))
    found = scan.filter(pl.col("id") >= 2998).collect()
    print(f"{scan.select(pl.len()).collect().item()} rows, the last {found['id'].to_list()}")


if __name__ == "__main__":
    main(sys.argv[1].rstrip("/"))
