"""Text and tables of Dask over a bucket: a task for each file, in threads or on a cluster.

    FOREBAY_ENDPOINT=http://127.0.0.1:7400 python examples/tables/with_dask.py fb://bucket/dask
"""

from __future__ import annotations

import sys

import dask.bag
import dask.dataframe as dd
import pandas as pd


def main(folder: str) -> None:
    words = dask.bag.from_sequence((f"word{i % 10}" for i in range(1000)), npartitions=4)
    words.to_textfiles(f"{folder}/text/*.txt")
    counts = dict(dask.bag.read_text(f"{folder}/text/*.txt").str.strip().frequencies().compute())
    table = dd.from_pandas(pd.DataFrame({"id": range(1000)}), npartitions=4)
    table.to_parquet(f"{folder}/table")
    total = dd.read_parquet(f"{folder}/table")["id"].sum().compute()
    print(f"{len(counts)} words, {counts['word3']} times each; ids with the sum {total}")


if __name__ == "__main__":
    main(sys.argv[1].rstrip("/"))
