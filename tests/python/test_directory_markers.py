"""Directory markers, the empty keys with a slash at their end that writers of data sets make: the
same steps in a native bucket, and in a folder bucket, in which a marker is a folder."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import forebay
import pytest
from botocore.exceptions import ClientError
from conftest import Cluster, wait_until
from forebay_s3 import ACCESS, REGION, SECRET, client

KINDS = ["native", "folder"]


@dataclass
class Place:
    """A bucket, and the folder behind it, if there is one."""

    cluster: Cluster
    bucket: forebay.Bucket
    folder: Path | None

    @property
    def name(self) -> str:
        return self.bucket.name

    def keys(self, prefix: str = "") -> list[str]:
        """The keys of the whole bucket. S3 and v1 list the same ones, each once."""
        s3 = client(f"{self.cluster.endpoint}/s3")
        pages = s3.get_paginator("list_objects_v2").paginate(
            Bucket=self.name, Prefix=prefix, PaginationConfig={"PageSize": 2}
        )
        by_s3 = [row["Key"] for page in pages for row in page.get("Contents", [])]
        rows = list(self.bucket.list_objects(prefix, page_size=2))
        assert [row.name for row in rows if not row.is_folder] == by_s3
        assert len(rows) == len(by_s3)
        assert list(self.bucket.list_snapshot(prefix).names()) == by_s3
        return by_s3


@pytest.fixture(scope="module")
def start(
    start_cluster: Callable[..., Cluster], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Place]:
    root = tmp_path_factory.mktemp("folders")
    running = start_cluster(options=["--folder-root", str(root)])
    made: list[str] = []

    def make(kind: str) -> Place:
        name = f"markers-{kind}-{len(made)}"
        made.append(name)
        bucket = forebay.Client(running.endpoint, timeout=20).bucket(name)
        if kind == "native":
            return Place(running, bucket.create(), None)
        (root / name).mkdir()
        return Place(running, bucket.create(folder=root / name), root / name)

    return make


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, start: Callable[[str], Place]) -> Iterator[Place]:
    made = start(request.param)
    yield made
    made.bucket.delete()


@pytest.fixture
def s3(place: Place) -> Any:
    return client(f"{place.cluster.endpoint}/s3")


def status(call: Callable[[], Any]) -> int:
    """The HTTP status of the answer to a request."""
    try:
        return int(call()["ResponseMetadata"]["HTTPStatusCode"])
    except ClientError as error:
        return int(error.response["ResponseMetadata"]["HTTPStatusCode"])


def copy_bucket(place: Place, to: Place) -> None:
    """Starts a job of v1 that copies all objects."""
    request = urllib.request.Request(
        f"{place.cluster.endpoint}/v1/buckets/{place.name}?bck_to=ais/@%23/{to.name}/",
        json.dumps({"action": "copy-bck"}).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=20):
        pass


def test_pyarrow_writes_reads_moves_and_removes_a_partitioned_data_set(place: Place) -> None:
    pa = pytest.importorskip("pyarrow")
    dataset = pytest.importorskip("pyarrow.dataset")
    fs = pytest.importorskip("pyarrow.fs")
    store = fs.S3FileSystem(
        access_key=ACCESS,
        secret_key=SECRET,
        endpoint_override=f"{place.cluster.endpoint.removeprefix('http://')}/s3",
        scheme="http",
        region=REGION,
    )
    base = f"{place.name}/set"
    table = pa.table({"id": range(10), "split": ["a", "b"] * 5})
    dataset.write_dataset(
        table, base, format="parquet", partitioning=["split"], filesystem=store
    )
    read = dataset.dataset(base, partitioning=["split"], filesystem=store).to_table()
    assert sorted(read["id"].to_pylist()) == list(range(10))
    assert place.keys("set/a/")[-1] == "set/a/part-0.parquet"

    def kinds(*names: str) -> list[str]:
        infos = store.get_file_info([f"{place.name}/{name}" for name in names])
        return [info.type.name for info in infos]

    store.create_dir(f"{place.name}/x/y/z", recursive=True)
    assert place.keys("x/") == ["x/", "x/y/", "x/y/z/"]
    found = kinds("x", "x/y", "x/y/z", "set", "set/a/part-0.parquet", "none")
    assert found == ["Directory"] * 4 + ["File", "NotFound"]
    with store.open_output_stream(f"{place.name}/x/y/f") as file:
        file.write(b"content")
    store.delete_file(f"{place.name}/x/y/f")
    assert kinds("x/y", "x/y/f") == ["Directory", "NotFound"]
    assert place.keys("x/") == ["x/", "x/y/", "x/y/z/"]
    store.move(f"{base}/a/part-0.parquet", f"{base}/a/p.parquet")
    read = dataset.dataset(base, partitioning=["split"], filesystem=store).to_table()
    assert sorted(read["id"].to_pylist()) == list(range(10))
    store.delete_dir_contents(base)
    assert kinds("set", "set/a") == ["Directory", "NotFound"]
    store.delete_dir(f"{place.name}/x")
    assert place.keys() == ["set/"]
    left = store.get_file_info(fs.FileSelector(place.name, recursive=True))
    assert [info.path for info in left] == [base]
    if place.folder is not None:
        assert [path.name for path in place.folder.iterdir()] == ["set"]


def test_a_marker_is_one_key_in_every_listing(place: Place, s3: Any) -> None:
    name = place.name
    put = s3.put_object(Bucket=name, Key="a/b/", Body=b"")
    s3.put_object(Bucket=name, Key="a/b/x", Body=b"1")
    s3.put_object(Bucket=name, Key="a/c/y", Body=b"1")
    assert place.keys() == ["a/b/", "a/b/x", "a/c/y"]

    def level(prefix: str) -> tuple[list[str], list[str], int]:
        page = s3.list_objects_v2(Bucket=name, Prefix=prefix, Delimiter="/")
        keys = [row["Key"] for row in page.get("Contents", [])]
        prefixes = [row["Prefix"] for row in page.get("CommonPrefixes", [])]
        return keys, prefixes, page["KeyCount"]

    assert level("") == ([], ["a/"], 1)
    assert level("a/") == ([], ["a/b/", "a/c/"], 2)
    assert level("a/b/") == (["a/b/", "a/b/x"], [], 2)
    rows = [(row.name, row.is_folder) for row in place.bucket.list_objects("a/", recursive=False)]
    assert rows == [("a/b/", True), ("a/c/", True)]
    rows = [(row.name, row.is_folder) for row in place.bucket.list_objects("a/b/", recursive=False)]
    assert rows == [("a/b/", False), ("a/b/x", False)]
    head = s3.head_object(Bucket=name, Key="a/b/")
    got = s3.get_object(Bucket=name, Key="a/b/")
    assert (head["ContentLength"], got["Body"].read()) == (0, b"")
    assert {put["ETag"], head["ETag"], got["ETag"]} == {'"d41d8cd98f00b204e9800998ecf8427e"'}
    assert status(lambda: s3.head_object(Bucket=name, Key="a/c/")) == 404
    assert status(lambda: s3.head_object(Bucket=name, Key="a/")) == 404
    # The cached copy of a marker may be evicted.
    assert place.folder is None or place.bucket.evict(prefix="").wait()
    assert place.keys() == ["a/b/", "a/b/x", "a/c/y"]
    again = s3.head_object(Bucket=name, Key="a/b/")
    assert (again["ETag"], again["LastModified"]) == (head["ETag"], head["LastModified"])


def test_a_marker_and_its_content_are_removed_one_without_the_other(place: Place, s3: Any) -> None:
    name = place.name
    s3.put_object(Bucket=name, Key="kept/", Body=b"")
    s3.put_object(Bucket=name, Key="kept/x", Body=b"1")
    s3.delete_object(Bucket=name, Key="kept/x")
    assert place.keys() == ["kept/"]
    s3.put_object(Bucket=name, Key="kept/y", Body=b"2")
    s3.delete_object(Bucket=name, Key="kept/")
    assert place.keys() == ["kept/y"]
    assert status(lambda: s3.head_object(Bucket=name, Key="kept/")) == 404
    assert s3.get_object(Bucket=name, Key="kept/y")["Body"].read() == b"2"
    s3.put_object(Bucket=name, Key="kept/", Body=b"")
    answer = s3.delete_objects(
        Bucket=name, Delete={"Objects": [{"Key": "kept/"}, {"Key": "kept/y"}]}
    )
    assert len(answer["Deleted"]) == 2 and not answer.get("Errors")
    assert place.keys() == []
    if place.folder is not None:
        assert list(place.folder.iterdir()) == []


def test_markers_are_copied_with_a_bucket_and_are_no_samples(
    place: Place, s3: Any, start: Callable[[str], Place]
) -> None:
    torch_package = pytest.importorskip("forebay_torch")
    for key, body in {"d/": b"", "d/e/": b"", "d/x": b"1", "empty": b""}.items():
        s3.put_object(Bucket=place.name, Key=key, Body=body)
    samples = torch_package.MapDataset(place.bucket)
    assert [(name, bytes(content)) for name, content in samples] == [("d/x", b"1"), ("empty", b"")]
    for kind in KINDS:
        other = start(kind)
        copy_bucket(place, other)
        wait_until(lambda: other.keys() == place.keys(), "all is copied", 20)
        assert other.keys() == ["d/", "d/e/", "d/x", "empty"]
        other.bucket.delete()


def test_a_marker_with_content_is_refused_by_a_folder_bucket(
    start: Callable[[str], Place],
) -> None:
    made = start("folder")
    s3 = client(f"{made.cluster.endpoint}/s3")
    with pytest.raises(ClientError, match="this one has 3 bytes") as refused:
        s3.put_object(Bucket=made.name, Key="a/", Body=b"abc")
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    with pytest.raises(forebay.InvalidArgument, match="this one has 3 bytes"):
        made.bucket.object("a/").put(b"abc")
    assert made.keys() == []
    # By v1, too, markers are put and removed.
    made.bucket.object("a/b/").put(b"")
    assert made.keys() == ["a/b/"]
    assert made.bucket.object("a/b/").get().read_all() == b""
    made.bucket.object("a/b/").delete()
    assert made.keys() == []
