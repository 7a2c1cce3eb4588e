"""A data set of pyarrow in a bucket: files by a column, of which a query reads what it needs.

    FOREBAY_ENDPOINT=http://127.0.0.1:7400 python examples/tables/with_pyarrow.py fb://bucket/arrow
"""

from __future__ import annotations

import sys

import fsspec
import pyarrow as pa
import pyarrow.dataset as ds


def main(folder: str) -> None:
    filesystem, path = fsspec.url_to_fs(folder)
    table = pa.table({"id": range(100_000), "part": [i % 4 for i in range(100_000)]})
    ds.write_dataset(
        table, path, format="parquet", partitioning=["part"], filesystem=filesystem,
        existing_data_behavior="overwrite_or_ignore",
    )  # fmt: skip
    data = ds.dataset(path, filesystem=filesystem, partitioning=["part"])
    last = data.to_table(columns=["id"], filter=(ds.field("part") == 3) & (ds.field("id") > 99_990))
    print(f"{len(data.files)} files, ids {last['id'].to_pylist()}")


if __name__ == "__main__":
    main(sys.argv[1].rstrip("/"))
