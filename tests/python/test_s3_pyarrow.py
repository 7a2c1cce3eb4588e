"""The S3 front as pyarrow uses it: AWS's own C++ SDK, datasets of Parquet files, virtual hosts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from conftest import Cluster
from forebay_s3 import ACCESS, LARGE_OBJECT_BYTES, ODD_NAMES, REGION, SECRET, content, objects
from pyarrow import fs as pafs

ROWS = 1_000_000


def filesystem(url: str, **more: Any) -> pafs.S3FileSystem:
    scheme, _, address = url.partition("://")
    return pafs.S3FileSystem(
        access_key=ACCESS,
        secret_key=SECRET,
        region=REGION,
        scheme=scheme,
        endpoint_override=address,
        allow_bucket_creation=True,
        allow_bucket_deletion=True,
        **more,
    )


@pytest.fixture
def fs(s3_url: str) -> pafs.S3FileSystem:
    return filesystem(s3_url)


def table(rows: int) -> pa.Table:
    """A column to split by, one to filter by and one of numbers that do not compress."""
    return pa.table(
        {
            "split": np.where(np.arange(rows) % 10 == 0, "test", "train"),
            "id": np.arange(rows),
            "value": np.random.default_rng(0).random(rows),
        }
    )


def names(fs: pafs.S3FileSystem, folder: str, recursive: bool = False) -> list[str]:
    found = fs.get_file_info(pafs.FileSelector(folder, recursive=recursive))
    return sorted(info.path.removeprefix(folder).lstrip("/") for info in found)


def test_a_dataset_is_written_and_read(fs: pafs.S3FileSystem, bucket: str) -> None:
    written = table(ROWS)
    by_split = ds.partitioning(pa.schema([("split", pa.string())]), flavor="hive")
    where = f"{bucket}/set"
    ds.write_dataset(written, where, format="parquet", partitioning=by_split, filesystem=fs)
    parts = ["split=test", "split=train"]
    assert names(fs, where, True) == sorted(parts + [f"{part}/part-0.parquet" for part in parts])
    assert fs.get_file_info(f"{where}/split=train/part-0.parquet").size > 10 << 20
    dataset = ds.dataset(where, format="parquet", partitioning=by_split, filesystem=fs)
    read = dataset.to_table().sort_by("id").select(written.column_names)
    assert read.equals(written)
    some = dataset.to_table(filter=(ds.field("split") == "test") & (ds.field("id") < 50))
    assert some["id"].to_pylist() == [0, 10, 20, 30, 40]


def test_one_column_takes_less_than_the_file(
    s3_cluster: Cluster, fs: pafs.S3FileSystem, bucket: str
) -> None:
    written = table(ROWS)
    pq.write_table(written, f"{bucket}/t.parquet", filesystem=fs)
    before = s3_cluster.count("forebay_get_bytes_total")
    read = pq.read_table(f"{bucket}/t.parquet", filesystem=fs, columns=["split"])
    assert read["split"].equals(written["split"])
    assert s3_cluster.count("forebay_get_bytes_total") - before < 1 << 20


def test_files_are_written_in_parts_and_read_in_ranges(
    fs: pafs.S3FileSystem, s3: Any, bucket: str
) -> None:
    large = content(LARGE_OBJECT_BYTES)
    for name, body in [("large", large), ("small", b"small"), ("empty", b"")]:
        with fs.open_output_stream(f"{bucket}/{name}") as file:
            file.write(body)
    assert objects(s3, bucket) == {"empty": b"", "large": large, "small": b"small"}
    with fs.open_input_file(f"{bucket}/large") as file:
        assert file.size() == LARGE_OBJECT_BYTES
        assert file.read_at(1000, LARGE_OBJECT_BYTES - 500) == large[-500:]
        assert file.read_at(100, 12_345_678) == large[12_345_678 : 12_345_678 + 100]


def test_folders_are_made_listed_and_deleted(fs: pafs.S3FileSystem, s3: Any, bucket: str) -> None:
    fs.create_dir(f"{bucket}/d/e")
    fs.open_output_stream(f"{bucket}/d/e/f").close()
    fs.open_output_stream(f"{bucket}/top").close()
    assert names(fs, bucket) == ["d", "top"]
    assert names(fs, bucket, True) == ["d", "d/e", "d/e/f", "top"]
    assert fs.get_file_info(f"{bucket}/d").type == pafs.FileType.Directory
    assert fs.get_file_info(f"{bucket}/none").type == pafs.FileType.NotFound
    fs.delete_dir(f"{bucket}/d")
    assert list(objects(s3, bucket)) == ["top"]
    fs.delete_dir_contents(bucket)
    fs.delete_dir(bucket)
    assert bucket not in [each["Name"] for each in s3.list_buckets()["Buckets"]]


def test_copies_moves_and_deletions(fs: pafs.S3FileSystem, s3: Any, bucket: str) -> None:
    large = content(LARGE_OBJECT_BYTES)
    with fs.open_output_stream(f"{bucket}/a") as file:
        file.write(large)
    fs.copy_file(f"{bucket}/a", f"{bucket}/b c")
    fs.move(f"{bucket}/a", f"{bucket}/ü")
    assert objects(s3, bucket) == {"b c": large, "ü": large}
    fs.delete_file(f"{bucket}/ü")
    assert list(objects(s3, bucket)) == ["b c"]


def test_content_headers_are_kept(fs: pafs.S3FileSystem, bucket: str) -> None:
    metadata_of = {"Content-Type": "text/x-test", "Cache-Control": "max-age=1"}
    fs.open_output_stream(f"{bucket}/k", metadata=metadata_of).close()
    kept = fs.open_input_stream(f"{bucket}/k").metadata()
    assert {name: kept[name].decode() for name in metadata_of} == metadata_of


def test_names_are_kept_as_they_are(fs: pafs.S3FileSystem, s3: Any, bucket: str) -> None:
    for name in ODD_NAMES:
        with fs.open_output_stream(f"{bucket}/{name}") as file:
            file.write(name.encode())
    assert objects(s3, bucket) == {name: name.encode() for name in ODD_NAMES}
    for name in ODD_NAMES:
        assert fs.open_input_stream(f"{bucket}/{name}").readall() == name.encode()


def test_buckets_are_hosts_where_a_domain_is_configured(
    s3_cluster: Cluster, s3: Any, bucket: str
) -> None:
    # libcurl finds every name under localhost on this machine.
    address = s3_cluster.endpoint.replace("127.0.0.1", "localhost")
    fs = filesystem(address, force_virtual_addressing=True)
    files = {"a b/ü": content(LARGE_OBJECT_BYTES), "s3/v1": b"x"}
    for name, body in files.items():
        with fs.open_output_stream(f"{bucket}/{name}") as file:
            file.write(body)
    assert names(fs, bucket, True) == ["a b", "a b/ü", "s3", "s3/v1"]
    with fs.open_input_file(f"{bucket}/a b/ü") as file:
        assert file.read_at(10, 5_000_000) == files["a b/ü"][5_000_000:][:10]
    assert objects(s3, bucket) == files
