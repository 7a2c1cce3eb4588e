"""Buckets, objects, listings and jobs against a real cluster."""

from __future__ import annotations

import io
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

import forebay

CONTENTS = {
    "empty": b"",
    "one": b"x",
    "kilo": os.urandom(1024),
    "dir/ü ñ/名前": b"utf-8 name",
    "large": os.urandom(5 << 20),
}


@pytest.fixture
def filled(bucket: forebay.Bucket) -> forebay.Bucket:
    for name, data in CONTENTS.items():
        bucket.object(name).put(data)
    return bucket


def test_what_was_put_is_got(filled: forebay.Bucket) -> None:
    for name, data in CONTENTS.items():
        item = filled.object(name)
        assert item.get().read_all() == data
        assert bytes(item.get_reader().memoryview()) == data
        assert b"".join(item.get()) == data
        props = item.head()
        assert (props.name, props.size, props.present) == (name, len(data), True)


def test_ranges_give_the_part(filled: forebay.Bucket) -> None:
    item, data = filled.object("kilo"), CONTENTS["kilo"]
    assert item.get(byte_range=(10, 5)).read_all() == data[10:15]
    assert item.get(byte_range="bytes=-7").read_all() == data[-7:]
    assert item.get(byte_range="bytes=1000-").read_all() == data[1000:]
    assert item.get(byte_range=(1020, 100)).read_all() == data[1020:]
    with pytest.raises(forebay.InvalidArgument) as caught:
        item.get(byte_range=(5000, 1)).read_all()
    assert caught.value.status == 416


def test_a_view_is_read_only_and_outlives_its_reader(filled: forebay.Bucket) -> None:
    view = filled.object("kilo").get().memoryview()
    assert view.readonly
    assert (view.format, view.ndim) == ("B", 1)
    with pytest.raises(TypeError):
        view[0] = 0
    assert view == CONTENTS["kilo"]


def test_a_reader_is_a_seekable_file(filled: forebay.Bucket) -> None:
    value = {"k": [1, 2, 3]}
    filled.object("pickle").put(pickle.dumps(value))
    assert pickle.load(filled.object("pickle").get()) == value
    reader, data = filled.object("kilo").get(), CONTENTS["kilo"]
    assert (reader.read(3), reader.tell()) == (data[:3], 3)
    target = bytearray(5)
    assert reader.readinto(target) == 5
    assert bytes(target) == data[3:8]
    assert reader.seek(-4, io.SEEK_END) == 1020
    assert reader.read() == data[-4:]
    assert reader.read(1) == b""
    assert reader.seek(2000) == 2000
    assert (reader.read(), reader.readinto(bytearray(1))) == (b"", 0)
    assert io.BufferedReader(filled.object("kilo").get()).read() == data  # type: ignore[arg-type]


def test_put_takes_buffers_files_and_paths(bucket: forebay.Bucket, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(CONTENTS["large"])
    sources: list[Any] = [bytearray(b"ab"), memoryview(b"xaby")[1:3], io.BytesIO(b"ab")]
    for source in sources:
        assert bucket.object("o").put(source).size == 2
        assert bucket.object("o").get().read_all() == b"ab"
    assert bucket.object("f").put(path).size == 5 << 20
    assert bucket.object("f").get().read_all() == CONTENTS["large"]
    with pytest.raises(FileNotFoundError, match="missing"):
        bucket.object("f").put(tmp_path / "missing")


def test_a_writer_stores_on_close_and_not_after_an_error(bucket: forebay.Bucket) -> None:
    with bucket.object("w").get_writer() as writer:
        writer.write(b"one")
        writer.write(b"two")
    assert bucket.object("w").get().read_all() == b"onetwo"
    with pytest.raises(KeyError), bucket.object("w").get_writer() as writer:
        writer.write(b"lost")
        raise KeyError("body")
    forgotten = bucket.object("w").get_writer()
    forgotten.write(b"lost")
    del forgotten
    assert bucket.object("w").get().read_all() == b"onetwo"


def test_missing_things_are_not_found(client: forebay.Client, bucket: forebay.Bucket) -> None:
    missing = bucket.object("no/such")
    for attempt in (missing.head, missing.delete, lambda: missing.get().read_all()):
        with pytest.raises(FileNotFoundError, match="no/such") as caught:
            attempt()
        assert isinstance(caught.value, forebay.NotFound)
        assert caught.value.code == "object_not_found"
    missing.delete(missing_ok=True)
    nowhere = client.bucket("no-such-bucket")
    nowhere.delete(missing_ok=True)
    for attempt in (nowhere.head, nowhere.delete, nowhere.list_snapshot):
        with pytest.raises(forebay.NotFound, match="no-such-bucket"):
            attempt()


def test_bad_object_names_are_refused(bucket: forebay.Bucket) -> None:
    for bad in ("nul\0", "x" * 1025, ""):
        with pytest.raises(forebay.InvalidArgument):
            bucket.object(bad).put(b"")
        with pytest.raises(forebay.InvalidArgument):
            bucket.get_many([bad])


def test_delete_removes_and_buckets_can_be_made_again(bucket: forebay.Bucket) -> None:
    bucket.object("o").put(b"1")
    with pytest.raises(FileExistsError, match=bucket.name):
        bucket.create()
    assert bucket.create(exist_ok=True) is bucket
    assert bucket.object("o").get().read_all() == b"1"
    bucket.object("o").delete()
    with pytest.raises(forebay.NotFound):
        bucket.object("o").head()
    bucket.object("o").put(b"2")
    bucket.delete()
    bucket.create()
    assert len(bucket.list_snapshot()) == 0
    assert bucket in bucket.client.buckets()
    assert isinstance(bucket.head(), dict)


def test_put_many_then_list(bucket: forebay.Bucket) -> None:
    items = {f"train/{i:04}": os.urandom(i % 50) for i in range(2500)}
    assert bucket.put_many(items.items(), concurrency=8) == 2500
    bucket.object("val/1").put(b"abc")
    expected = sorted((name, len(data)) for name, data in items.items())
    assert list(bucket.list_snapshot("train/")) == expected
    pages = list(bucket.list_objects("train/", page_size=700))
    assert [(e.name, e.size) for e in pages] == expected
    assert all(e.present for e in pages)
    assert len(bucket.list_snapshot()) == 2501
    assert list(bucket.list_snapshot("none/")) == []
    assert [e.name for e in bucket.list_objects("val")] == ["val/1"]


def test_put_many_names_the_object_that_failed(bucket: forebay.Bucket) -> None:
    with pytest.raises(forebay.InvalidArgument, match="nul"):
        bucket.put_many([("good", b"1"), ("nul\0", b"2")])


def test_a_group_is_listed_in_its_own_order(filled: forebay.Bucket) -> None:
    group = filled.objects(["one", "empty", "kilo"])
    assert list(group.list_snapshot()) == [("one", 1), ("empty", 0), ("kilo", 1024)]
    assert list(group.list_snapshot("e")) == [("empty", 0)]
    with pytest.raises(forebay.NotFound, match="absent"):
        filled.objects(["one", "absent"]).list_snapshot()


def test_a_folder_bucket_reads_and_writes_the_folder(client: forebay.Client, cluster: Any) -> None:
    folder = cluster.folder_root / "window"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub/a").write_bytes(b"from disk")
    bucket = client.bucket("window").create(folder=folder)
    try:
        assert list(bucket.list_snapshot()) == [("sub/a", 9)]
        assert not next(bucket.list_objects()).present
        job = bucket.prefetch(prefix="sub/")
        status = job.wait(20)
        assert (status.state, status.objects, status.errors) == ("done", 1, 0)
        assert next(bucket.list_objects()).present
        assert bucket.object("sub/a").get().read_all() == b"from disk"
        bucket.object("new").put(b"to disk")
        assert (folder / "new").read_bytes() == b"to disk"
        assert bucket.evict(["sub/a"]).wait(20).state == "done"
        assert [e.present for e in bucket.list_objects("sub/")] == [False]
    finally:
        bucket.delete()
    assert (folder / "sub/a").exists()
    with pytest.raises(forebay.ForebayError, match="root"):
        client.bucket("outside").create(folder="/etc")


def test_an_account_that_no_target_has_is_refused(client: forebay.Client) -> None:
    with pytest.raises(forebay.InvalidArgument, match="prod"):
        client.bucket("in-cloud", "s3").create(account="prod")
    with pytest.raises(forebay.InvalidArgument, match="no bucket of a cloud"):
        client.bucket("native").create(account="prod")


def test_the_plan_of_a_prefetch_is_what_the_job_fetches(client: forebay.Client, cluster: Any) -> None:
    folder = cluster.folder_root / "planned"
    folder.mkdir()
    for number in range(6):
        (folder / f"{number}.bin").write_bytes(bytes(1000 + number))
    bucket = client.bucket("planned").create(folder=folder)
    try:
        cold = bucket.prefetch_plan(prefix="")
        assert cold == forebay.PrefetchPlan(6, 6015, 0, 0, 6, 6015, requests=7)
        assert bucket.prefetch_plan(["1.bin", "0.bin"]).fetch_bytes == 2001
        planned = bucket.prefetch_plan(template="{0..2}.bin")
        job = bucket.prefetch(template="{0..2}.bin").wait(20)
        assert (job.objects, job.bytes) == (planned.fetch_objects, planned.fetch_bytes) == (3, 3003)
        rest = bucket.prefetch_plan(prefix="")
        assert (rest.cached_objects, rest.cached_bytes) == (3, 3003)
        job = bucket.prefetch(prefix="").wait(20)
        assert (job.objects, job.bytes) == (rest.fetch_objects, rest.fetch_bytes) == (3, 3012)
        assert bucket.prefetch_plan(prefix="").fetch_objects == 0
        with pytest.raises(forebay.NotFound, match="9.bin"):
            bucket.prefetch_plan(["0.bin", "9.bin"])
        with pytest.raises(forebay.InvalidArgument, match="empty"):
            bucket.prefetch_plan([])
        with pytest.raises(ValueError, match="exactly one"):
            bucket.prefetch_plan()
    finally:
        bucket.delete()


def test_a_native_bucket_has_no_plan_of_a_prefetch(bucket: forebay.Bucket) -> None:
    with pytest.raises(forebay.InvalidArgument, match="no backend"):
        bucket.prefetch_plan(prefix="")


def test_the_cluster_says_who_it_is(client: forebay.Client) -> None:
    nodes = client.cluster().map()["nodes"]
    assert sorted(node["role"] for node in nodes.values()) == ["gateway"] + ["target"] * 3
    info = client.cluster().info()
    assert len(info["nodes"]) == 4
    assert all(node["alive"] for node in info["nodes"])


def test_schemes_have_their_other_names_everywhere(client: forebay.Client) -> None:
    for uri, plain in (
        ("forebay://b/a", "ais://b"),
        ("fb://b/a", "ais://b"),
        ("gcs://b/a", "gs://b"),
        ("gs://b/a", "gs://b"),
    ):
        bucket, name = client.bucket_of(uri)
        assert (bucket.uri, name) == (plain, "a")
        assert client.bucket("b", uri.partition(":")[0]).uri == plain
