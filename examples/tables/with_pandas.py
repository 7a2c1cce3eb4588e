"""A table of pandas in a bucket, written and read by its URL.

    FOREBAY_ENDPOINT=http://127.0.0.1:7400 python examples/tables/with_pandas.py fb://bucket/pandas
"""

from __future__ import annotations

import sys

import pandas as pd


def main(folder: str) -> None:
    table = pd.DataFrame({"id": range(100_000), "even": [i % 2 == 0 for i in range(100_000)]})
    table.to_parquet(f"{folder}/a.parquet")
    table.head(10).to_csv(f"{folder}/a.csv.gz", index=False)
    ids = pd.read_parquet(f"{folder}/a.parquet", columns=["id"])
    few = pd.read_csv(f"{folder}/a.csv.gz")
    print(f"{len(ids)} ids with the sum {ids['id'].sum()}, and {len(few)} rows of CSV")


if __name__ == "__main__":
    main(sys.argv[1].rstrip("/"))
