"""The S3 front as DuckDB uses it, through its own HTTP client."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest
from forebay_s3 import ACCESS, REGION, SECRET, duckdb_httpfs, objects


@pytest.fixture
def db(s3_url: str) -> duckdb.DuckDBPyConnection:
    """A database in memory that knows the cluster."""
    scheme, _, address = s3_url.partition("://")
    connection = duckdb.connect(config={"autoinstall_known_extensions": False})
    connection.execute(f"LOAD '{duckdb_httpfs()}'")
    connection.execute(
        f"CREATE SECRET (TYPE s3, KEY_ID '{ACCESS}', SECRET '{SECRET}', REGION '{REGION}', "
        f"ENDPOINT '{address}', URL_STYLE 'path', USE_SSL {scheme == 'https'})"
    )
    return connection


def test_a_table_is_written_in_parts_and_queried(
    db: duckdb.DuckDBPyConnection, s3: Any, bucket: str
) -> None:
    db.execute("CREATE TABLE t AS SELECT i AS id, hash(i) AS h FROM range(2000000) r(i)")
    db.execute(f"COPY t TO 's3://{bucket}/a b/ü.parquet'")
    assert s3.head_object(Bucket=bucket, Key="a b/ü.parquet")["ContentLength"] > 14 << 20
    again = db.execute(f"SELECT count(*), sum(id) FROM 's3://{bucket}/a b/ü.parquet'").fetchone()
    assert again == (2_000_000, sum(range(2_000_000)))
    same = f"SELECT h FROM t WHERE id = 77 INTERSECT SELECT h FROM 's3://{bucket}/a b/*.parquet'"
    assert len(db.execute(same).fetchall()) == 1


def test_partitions_are_written_and_read_by_pattern(
    db: duckdb.DuckDBPyConnection, s3: Any, bucket: str
) -> None:
    db.execute(
        "COPY (SELECT i AS id, i % 3 AS split FROM range(30) r(i)) "
        f"TO 's3://{bucket}/set' (FORMAT csv, PARTITION_BY split)"
    )
    assert {key.split("/")[1] for key in objects(s3, bucket)} == {f"split={n}" for n in range(3)}
    found = db.execute(
        f"SELECT count(*) FROM read_csv('s3://{bucket}/set/*/*.csv', hive_partitioning = true) "
        "WHERE split = 1"
    )
    assert found.fetchone() == (10,)
