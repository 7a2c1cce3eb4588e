"""The S3 front as polars uses it, and with it every program on the Rust crate `object_store`."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import polars as pl
import pytest
from conftest import Cluster
from forebay_s3 import ACCESS, ODD_NAMES, REGION, SECRET, objects

ROWS = 1_000_000
# Polars reads this at its first upload. Its own size is too large for the tables of a test.
os.environ["POLARS_UPLOAD_CHUNK_SIZE"] = str(6 << 20)


@pytest.fixture
def options(s3_url: str) -> dict[str, str]:
    return {
        "aws_endpoint_url": s3_url,
        "aws_access_key_id": ACCESS,
        "aws_secret_access_key": SECRET,
        "aws_region": REGION,
        "aws_allow_http": "true",
    }


def frame(rows: int) -> pl.DataFrame:
    """Numbers in order to filter by, and numbers that do not compress."""
    value = np.random.default_rng(0).random(rows)
    return pl.DataFrame({"id": np.arange(rows), "value": value, "more": value[::-1]})


def test_a_frame_is_written_and_scanned(options: dict[str, str], s3: Any, bucket: str) -> None:
    written = frame(ROWS)
    where = f"s3://{bucket}/a b/ü.parquet"
    written.write_parquet(where, storage_options=options)
    head = s3.head_object(Bucket=bucket, Key="a b/ü.parquet")
    assert head["ContentLength"] > 14 << 20
    assert head["ETag"].endswith('-3"'), "uploaded in parts"
    assert pl.read_parquet(where, storage_options=options).equals(written)
    scan = pl.scan_parquet(where, storage_options=options)
    last = scan.filter(pl.col("id") > ROWS - 3).select("id").collect()
    assert last["id"].to_list() == [ROWS - 2, ROWS - 1]


def test_one_column_takes_less_than_the_file(
    s3_cluster: Cluster, options: dict[str, str], bucket: str
) -> None:
    written = frame(ROWS)
    where = f"s3://{bucket}/t.parquet"
    written.write_parquet(where, storage_options=options, row_group_size=100_000)
    before = s3_cluster.count("forebay_get_bytes_total")
    got = pl.scan_parquet(where, storage_options=options).filter(pl.col("id") < 5).collect()
    assert got.equals(written[:5])
    assert s3_cluster.count("forebay_get_bytes_total") - before < 8 << 20


def test_partitions_are_written_and_found_by_pattern(
    options: dict[str, str], s3: Any, bucket: str
) -> None:
    frames = {name: pl.DataFrame({"x": [n]}) for n, name in enumerate(["a", "b", "c"])}
    for name, each in frames.items():
        each.write_csv(f"s3://{bucket}/set/{name}.csv", storage_options=options)
    frames["a"].lazy().sink_ndjson(f"s3://{bucket}/other.json", storage_options=options)
    together = pl.scan_csv(f"s3://{bucket}/set/*.csv", storage_options=options).collect()
    assert sorted(together["x"].to_list()) == [0, 1, 2]
    assert len(objects(s3, bucket)) == 4


def test_names_are_kept_as_they_are(options: dict[str, str], s3: Any, bucket: str) -> None:
    # A pattern's characters are patterns here, so names that have them are left out.
    for name in [n for n in ODD_NAMES if not set(n) & set("[]*?")]:
        one = pl.DataFrame({"name": [name]})
        one.write_parquet(f"s3://{bucket}/{name}", storage_options=options)
        assert s3.head_object(Bucket=bucket, Key=name)["ContentLength"] > 0
        assert pl.read_parquet(f"s3://{bucket}/{name}", storage_options=options).equals(one)
