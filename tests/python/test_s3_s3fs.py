"""The S3 front as s3fs uses it, and with it fsspec, pandas, dask and xarray."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
import s3fs
from conftest import Cluster, Minio
from forebay_s3 import ACCESS, LARGE_OBJECT_BYTES, ODD_NAMES, REGION, SECRET, content, objects, run

PART = 5 << 20


def filesystem(url: str) -> Any:
    """s3fs that asks anew each time, instead of trusting what it listed before."""
    return s3fs.S3FileSystem(
        key=ACCESS,
        secret=SECRET,
        endpoint_url=url,
        client_kwargs={"region_name": REGION},
        use_listings_cache=False,
        skip_instance_cache=True,
    )


@pytest.fixture
def fs(s3_url: str) -> Any:
    return filesystem(s3_url)


def write_in_parts(fs: Any, path: str, body: bytes) -> None:
    with fs.open(path, "wb", block_size=PART) as file:
        for start in range(0, len(body), PART):
            file.write(body[start : start + PART])


def test_files_are_written_whole_and_in_parts(fs: Any, s3: Any, bucket: str) -> None:
    large = content(LARGE_OBJECT_BYTES)
    fs.pipe(f"{bucket}/small", b"small")
    write_in_parts(fs, f"{bucket}/large", large)
    assert objects(s3, bucket) == {"small": b"small", "large": large}
    assert s3.head_object(Bucket=bucket, Key="large")["ETag"].endswith('-4"')
    assert fs.cat(f"{bucket}/large") == large


def test_an_upload_that_fails_leaves_no_file(fs: Any, bucket: str) -> None:
    with pytest.raises(ZeroDivisionError), fs.transaction:
        with fs.open(f"{bucket}/half", "wb", block_size=PART) as file:
            file.write(content(2 * PART))
            raise ZeroDivisionError
    assert fs.ls(bucket) == []


def test_folders_are_listed_one_level_or_all(fs: Any, bucket: str) -> None:
    names = ["a", "d/1", "d/2", "d/deeper/3"]
    fs.pipe({f"{bucket}/{name}": name.encode() for name in names})
    assert fs.ls(bucket) == [f"{bucket}/a", f"{bucket}/d"]
    assert fs.isdir(f"{bucket}/d") and fs.isfile(f"{bucket}/d/1")
    assert fs.find(bucket) == [f"{bucket}/{name}" for name in names]
    assert fs.glob(f"{bucket}/d/*") == [f"{bucket}/d/{name}" for name in ["1", "2", "deeper"]]
    assert fs.du(bucket) == sum(map(len, names))
    assert not fs.exists(f"{bucket}/d/9")


def test_any_range_of_a_file_can_be_read(fs: Any, bucket: str) -> None:
    large = content(LARGE_OBJECT_BYTES)
    fs.pipe(f"{bucket}/large", large)
    assert fs.cat_file(f"{bucket}/large", start=1000, end=2000) == large[1000:2000]
    assert fs.tail(f"{bucket}/large", 100) == large[-100:]
    with fs.open(f"{bucket}/large", "rb", block_size=PART) as file:
        file.seek(LARGE_OBJECT_BYTES - 10)
        assert file.read() == large[-10:]
        file.seek(PART - 5)
        assert file.read(10) == large[PART - 5 : PART + 5]


def test_copies_moves_and_deletions(fs: Any, s3: Any, bucket: str) -> None:
    fs.pipe(f"{bucket}/a", b"a")
    fs.copy(f"{bucket}/a", f"{bucket}/d/b")
    fs.mv(f"{bucket}/a", f"{bucket}/d/c")
    assert objects(s3, bucket) == {"d/b": b"a", "d/c": b"a"}
    fs.rm(f"{bucket}/d", recursive=True)
    assert fs.find(bucket) == []


def test_a_file_of_parts_is_copied_part_by_part(fs: Any, s3: Any, bucket: str) -> None:
    large = content(LARGE_OBJECT_BYTES)
    write_in_parts(fs, f"{bucket}/large", large)
    fs.copy(f"{bucket}/large", f"{bucket}/copy", preserve_etag=True)
    assert objects(s3, bucket) == {"copy": large, "large": large}
    assert fs.info(f"{bucket}/copy")["ETag"] == fs.info(f"{bucket}/large")["ETag"]


def test_metadata_and_tags_are_kept_and_changed(fs: Any, bucket: str) -> None:
    path = f"{bucket}/k"
    fs.pipe_file(path, b"x", ContentType="text/x-test", Metadata={"label": "cat"})
    assert fs.metadata(path) == {"label": "cat"}
    assert fs.info(path)["ContentType"] == "text/x-test"
    fs.setxattr(path, label="dog", origin="web")
    assert fs.metadata(path) == {"label": "dog", "origin": "web"}
    fs.put_tags(path, {"split": "train"})
    assert fs.get_tags(path) == {"split": "train"}


def test_names_are_kept_as_they_are(fs: Any, s3: Any, bucket: str) -> None:
    fs.pipe({f"{bucket}/{name}": name.encode() for name in ODD_NAMES})
    assert objects(s3, bucket) == {name: name.encode() for name in ODD_NAMES}
    assert {path.removeprefix(f"{bucket}/") for path in fs.find(bucket)} == set(ODD_NAMES)


def test_a_bucket_of_a_cloud_is_read_and_written_through(
    start_cluster: Callable[..., Cluster], forebay_bin: Path, minio: Minio
) -> None:
    name = f"t-{uuid.uuid4().hex[:12]}"
    cloud = boto3.client(
        "s3",
        endpoint_url=minio.endpoint,
        region_name=minio.env["AWS_REGION"],
        aws_access_key_id=minio.env["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=minio.env["AWS_SECRET_ACCESS_KEY"],
    )
    cloud.create_bucket(Bucket=name)
    large = content(LARGE_OBJECT_BYTES)
    cloud.put_object(Bucket=name, Key="there/before", Body=large, Metadata={"label": "cat"})
    cluster = start_cluster(env=minio.env)
    # S3 names no cloud: the cluster has to know the bucket.
    run([forebay_bin, "--endpoint", cluster.endpoint, "ls", f"s3://{name}"])
    fs = filesystem(f"{cluster.endpoint}/s3")
    assert fs.find(name) == [f"{name}/there/before"]
    assert fs.cat_file(f"{name}/there/before", start=LARGE_OBJECT_BYTES - 9) == large[-9:]
    assert fs.cat(f"{name}/there/before") == large
    assert fs.metadata(f"{name}/there/before") == {"label": "cat"}
    write_in_parts(fs, f"{name}/new", large)
    fs.copy(f"{name}/there/before", f"{name}/copy")
    fs.rm(f"{name}/there/before")
    assert objects(cloud, name) == {"copy": large, "new": large}
    assert cloud.head_object(Bucket=name, Key="copy")["Metadata"] == {"label": "cat"}
