"""Everyday calls of the AIStore SDK 2.0, the version after the one that our tests install.

`ci/aistore_2.sh` fetches it into a folder of its own; `make test-py` runs this file with that
folder first. Elsewhere the file is skipped.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import tarfile
from collections.abc import Iterator

import pytest
from aistore.pytorch import (
    AISIterDataset,
    AISMapDataset,
    AISMultiShardStream,
    AISParallelMapDataset,
    AISShardReader,
)
from aistore.pytorch.batch_iter_dataset import AISBatchIterDataset
from aistore.pytorch.dynamic_sampler import DynamicBatchSampler
from aistore.sdk import ArchiveConfig, Bucket, Client, DataShard
from aistore.sdk.archive_config import ArchiveMode
from aistore.sdk.errors import AISError, ErrBckAlreadyExists, ErrBckNotFound, ErrObjNotFound
from conftest import Cluster
from torch.utils.data import DataLoader

VERSION = importlib.metadata.version("aistore")
pytestmark = pytest.mark.skipif(
    not VERSION.startswith("2."),
    reason=f'aistore {VERSION} is installed; PYTHONPATH="$(ci/aistore_2.sh)" has 2.0',
)

WAIT_S = 30


def content(name: str, size: int = 1000) -> bytes:
    """Bytes that only this name has."""
    return hashlib.shake_128(name.encode()).digest(size)


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Client:
    return Client(cluster.endpoint)


@pytest.fixture
def bucket(client: Client, request: pytest.FixtureRequest) -> Iterator[Bucket]:
    name = "two-" + request.node.name.removeprefix("test_").translate(
        str.maketrans({"[": "-", "]": None, ".": "-"})
    )
    own = client.bucket(name[:60])
    own.create()
    yield own
    own.delete(missing_ok=True)


@pytest.fixture
def other(client: Client, bucket: Bucket) -> Iterator[Bucket]:
    """A second bucket, beside `bucket`."""
    own = client.bucket(bucket.name[:50] + "-other")
    own.create()
    yield own
    own.delete(missing_ok=True)


def fill(bucket: Bucket, count: int = 10, size: int = 1000) -> dict[str, bytes]:
    data = {f"dir/{n:02}.bin": content(f"{bucket.name}/{n}", size) for n in range(count)}
    for name, value in data.items():
        bucket.object(name).get_writer().put_content(value)
    return data


def contents(bucket: Bucket) -> dict[str, bytes]:
    return {
        entry.name: bucket.object(entry.name).get_reader().read_all()
        for entry in bucket.list_all_objects()
    }


def done(client: Client, jobs: str | list[str]) -> None:
    """Waits for jobs, which must end well."""
    for job in [jobs] if isinstance(jobs, str) else jobs:
        result = client.job(job).wait(timeout=WAIT_S, verbose=False)
        assert result.success, (job, result.error)


# --- cluster


def test_the_cluster_is_described(client: Client, cluster: Cluster) -> None:
    known = client.cluster()
    info = known.get_info()
    assert set(info.tmap) == {target["id"] for target in cluster.targets}
    assert known.get_uuid() == info.uuid
    assert known.get_primary_url() == cluster.endpoint
    assert known.is_ready()
    assert set(known.get_performance()) == set(info.tmap)


# --- buckets


def test_a_bucket_lives_and_says_what_it_holds(client: Client, bucket: Bucket) -> None:
    with pytest.raises(ErrBckAlreadyExists):
        bucket.create()
    assert bucket.name in [listed.name for listed in client.cluster().list_buckets()]
    assert bucket.name in [listed.name for listed in client.cluster().list_buckets("")]
    assert bucket.head()["Ais-Bucket-Props"]
    data = fill(bucket)
    listed = bucket.list_all_objects(props="name,size,checksum,version")
    assert {entry.name: entry.size for entry in listed} == {n: len(d) for n, d in data.items()}
    assert all(entry.checksum and entry.version == "1" for entry in listed)
    pages = list(bucket.list_objects_iter(page_size=3, prefix="dir/"))
    assert [entry.name for entry in pages] == sorted(data)
    names = [item.name for item in bucket.list_all_objects_iter(prefix="dir/0")]
    assert names == sorted(data)
    summary = bucket.summary()
    assert summary["name"] == bucket.name
    assert int(summary["ObjCount"]["obj_count_present"]) == len(data)


def test_missing_things_are_named(client: Client, bucket: Bucket) -> None:
    nowhere = client.bucket("two-nowhere")
    with pytest.raises(ErrBckNotFound):
        nowhere.list_objects()
    with pytest.raises(ErrBckNotFound):
        nowhere.delete()
    with pytest.raises(ErrObjNotFound):
        bucket.object("x").get_reader().read_all()
    with pytest.raises(ErrObjNotFound):
        bucket.object("x").delete()
    with pytest.raises(AISError) as refused:
        bucket.object("x").head()
    assert refused.value.status_code == 404


def test_a_bucket_is_copied(client: Client, bucket: Bucket, other: Bucket) -> None:
    data = fill(bucket)
    done(client, bucket.copy(other, prepend="copy/", ext={"bin": "dat"}))
    assert contents(other) == {f"copy/{n[:-4]}.dat": d for n, d in data.items()}


def test_a_bucket_is_renamed(client: Client, bucket: Bucket) -> None:
    data = fill(bucket)
    before, after = bucket.name, bucket.name + "-new"
    done(client, bucket.rename(after))
    assert contents(client.bucket(after)) == data
    with pytest.raises(ErrBckNotFound):
        client.bucket(before).list_objects()


def test_files_are_put(bucket: Bucket, tmp_path: object) -> None:
    folder = tmp_path / "data"  # type: ignore[operator]
    (folder / "inner").mkdir(parents=True)
    (folder / "a").write_bytes(content("a"))
    (folder / "inner/b").write_bytes(content("b"))
    bucket.put_files(str(folder), recursive=True, prepend="files/")
    assert contents(bucket) == {"files/a": content("a"), "files/inner/b": content("b")}


# --- objects


def test_an_object_is_read_in_every_way(bucket: Bucket) -> None:
    data = content("x", 3_000_000)
    item = bucket.object("dir/größe 1%.bin")
    item.get_writer().put_content(data)
    assert item.get_reader().read_all() == data
    assert b"".join(item.get_reader(chunk_size=65536)) == data
    assert item.get_reader(byte_range="bytes=10-19").read_all() == data[10:20]
    assert item.get_reader(direct=True).read_all() == data
    with item.get_reader(num_workers=3).read_all() as buffer:
        assert buffer.tobytes() == data
    with item.get_reader().as_file() as file:
        assert file.read(1000) + file.read() == data
    assert item.get_reader().raw().read() == data


def test_the_head_of_an_object_has_what_is_asked_for(bucket: Bucket) -> None:
    item = bucket.object("x")
    item.get_writer().put_content(b"hello")
    bare = item.head()
    assert (bare.size, bare.present, bare.checksum_value) == (5, True, "")
    props = item.props
    assert (props.name, props.bucket_name, props.bucket_provider) == ("x", bucket.name, "ais")
    assert (props.checksum_type, props.checksum_value) == ("xxhash2", "26c7827d889f6da3")
    assert props.obj_version == "1" and props.access_time and props.location
    every = item.head("checksum,atime,version,copies,ec,custom,location,chunked,last-modified,etag")
    assert every.size == 5 and every.etag and every.last_modified
    with pytest.raises(AISError) as refused:
        item.head("size,nonsense")
    assert refused.value.status_code == 400


def test_custom_metadata_is_kept(bucket: Bucket) -> None:
    item = bucket.object("x")
    item.get_writer().put_content(b"hello")
    item.get_writer().set_custom_props({"label": "cat"})
    item.get_writer().set_custom_props({"split": "train"})
    assert item.props.custom_metadata == {"label": "cat", "split": "train"}
    item.get_writer().set_custom_props({"only": "this"}, replace_existing=True)
    assert item.props.custom_metadata == {"only": "this"}


def test_an_object_is_appended_to_and_written_as_a_file(bucket: Bucket) -> None:
    writer = bucket.object("appended").get_writer()
    handle = writer.append_content(b"one ")
    handle = writer.append_content(b"two", handle=handle)
    writer.append_content(b"", handle=handle, flush=True)
    with bucket.object("file").get_writer().as_file() as file:
        file.write(b"three ")
        file.write(b"four")
    assert contents(bucket) == {"appended": b"one two", "file": b"three four"}


def test_an_object_is_uploaded_in_parts(bucket: Bucket) -> None:
    parts = [content(f"part {n}", 100_000) for n in range(3)]
    upload = bucket.object("parts").multipart_upload().create()
    for number, part in enumerate(parts, 1):
        upload.add_part(number).put_content(part)
    upload.complete()
    assert bucket.object("parts").get_reader().read_all() == b"".join(parts)
    given_up = bucket.object("never").multipart_upload().create()
    given_up.add_part(1).put_content(parts[0])
    given_up.abort()
    assert [entry.name for entry in bucket.list_all_objects()] == ["parts"]


def test_an_object_is_copied(bucket: Bucket, other: Bucket) -> None:
    item = bucket.object("from")
    item.get_writer().put_content(content("x"))
    item.copy(other.object("dir/to"))
    assert contents(other) == {"dir/to": content("x")}


def test_the_url_of_an_object_leads_to_it(client: Client, bucket: Bucket) -> None:
    data = fill(bucket, count=2)
    assert len(list(bucket.list_urls())) == 2
    item = bucket.object("dir/01.bin")
    assert client.get_object_from_url(item.get_semantic_url()).name == item.name
    assert client.get_object_from_url(item.get_semantic_url()).get_reader().read_all() == (
        data["dir/01.bin"]
    )


# --- groups of objects, and jobs


def test_a_group_is_listed_copied_and_deleted(
    client: Client, bucket: Bucket, other: Bucket
) -> None:
    data = fill(bucket)
    group = bucket.objects(obj_template="dir/{02..05}.bin")
    names = [f"dir/{n:02}.bin" for n in range(2, 6)]
    assert group.list_names() == names
    assert [item.props_cached.size for item in group.list_all_objects_iter()] == [1000] * 4
    done(client, group.copy(other, prepend="some/"))
    assert contents(other) == {f"some/{name}": data[name] for name in names}
    done(client, bucket.objects(obj_names=names[:3]).delete())
    assert sorted(contents(bucket)) == sorted(set(data) - set(names[:3]))


@pytest.mark.parametrize("ext", [".tar", ".tgz", ".zip"])
def test_a_group_is_archived_and_read_from_the_shard(
    client: Client, bucket: Bucket, ext: str
) -> None:
    data = fill(bucket, count=4)
    shard = f"shard{ext}"
    done(client, bucket.objects(obj_names=sorted(data)).archive(shard))
    listed = bucket.list_archive(shard, props="name,size")
    assert {entry.name: entry.size for entry in listed} == {
        f"{shard}/{name}": 1000 for name in data
    }
    for name, want in data.items():
        reader = bucket.object(shard).get_reader(archive_config=ArchiveConfig(archpath=name))
        assert reader.read_all() == want
    matching = ArchiveConfig(regex="02.bin", mode=ArchiveMode.SUFFIX)
    answer = bucket.object(shard).get_reader(archive_config=matching).read_all()
    with tarfile.open(fileobj=io.BytesIO(answer)) as archive:
        assert archive.getnames() == ["dir/02.bin"]


def test_jobs_are_listed_and_waited_for(client: Client, bucket: Bucket) -> None:
    fill(bucket)
    job = client.job(bucket.objects(obj_template="dir/{00..09}.bin").delete())
    assert job.wait(timeout=WAIT_S, verbose=False)
    status = job.status()
    assert (status.uuid, status.err, status.aborted) == (job.job_id, "", False)
    assert status.end_time > 0
    snapshots = job.get_details().list_snapshots()
    assert snapshots and all(snapshot.id == job.job_id for snapshot in snapshots)
    assert job.get_total_time() is not None
    known = [status.uuid for status in client.cluster().list_jobs_status("delete-listrange")]
    assert job.job_id in known
    assert not [n for n in client.cluster().list_running_jobs() if job.job_id in n]
    with pytest.raises(AISError) as unknown:
        client.job("unknown-job").status()
    assert unknown.value.status_code == 404
    started = client.job(job_kind="lru").start()
    assert client.job(started).wait(timeout=WAIT_S, verbose=False)


# --- batches


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "buffered"])
@pytest.mark.parametrize("output", [".tar", ".tgz", ".tar.gz", ".zip"])
def test_a_batch_has_every_entry_in_order(
    client: Client, bucket: Bucket, other: Bucket, output: str, streaming: bool
) -> None:
    data, others = fill(bucket), fill(other, count=3)
    batch = client.batch(bucket=bucket, output_format=output, streaming_get=streaming)
    want = []
    for name in reversed(data):
        batch.add(name)
        want.append((bucket.name, name, data[name]))
    batch.add("not/there", opaque=b"\xfb\xff tag")
    want.append((bucket.name, "not/there", b""))
    for name, value in others.items():
        batch.add(name, bck=other.name, provider="ais", start=10, length=-1)
        want.append((other.name, name, value[10:]))
    answers = list(batch.get())
    assert [(info.bucket, info.obj_name, data) for info, data in answers] == want
    missing = answers[len(data)][0]
    assert missing.err_msg
    if not streaming:
        assert missing.opaque == b"\xfb\xff tag"
        assert f"ais://{bucket.name}/not/there" in missing.err_msg
        assert [info.size for info, _ in answers[-3:]] == [990] * 3


def test_a_batch_may_be_read_raw_and_with_another_buffer(client: Client, bucket: Bucket) -> None:
    data = fill(bucket, count=3)
    batch = client.batch(sorted(data), bucket=bucket, only_obj_name=True)
    raw = batch.get(raw=True, clear_batch=False)
    with tarfile.open(fileobj=io.BytesIO(raw.read())) as archive:
        assert archive.getnames() == sorted(data)
    raw.close()
    assert [d for _, d in batch.get(tar_buffer_size=10240)] == [data[n] for n in sorted(data)]


def test_a_batch_that_must_be_complete_fails_where_something_is_missing(
    client: Client, bucket: Bucket
) -> None:
    data = fill(bucket, count=3)
    names = [*sorted(data), "not/there"]
    with pytest.raises(ErrObjNotFound):
        list(client.batch(names, bucket=bucket, streaming_get=False, cont_on_err=False).get())
    with pytest.raises(Exception):  # noqa: B017  which one is between HTTP and tarfile
        list(client.batch(names, bucket=bucket, cont_on_err=False).get())
    with pytest.raises(AISError) as beyond:
        batch = client.batch(bucket=bucket, streaming_get=False, cont_on_err=False)
        list(batch.add(names[0], start=500, length=501).get())
    assert beyond.value.status_code == 416
    with pytest.raises(ErrBckNotFound):
        list(client.batch(["x"], bucket=client.bucket("two-nowhere")).get())


def test_a_batch_is_a_job(client: Client, bucket: Bucket) -> None:
    def known() -> set[str]:
        snapshots = client.job(job_kind="get-batch").get_details().list_snapshots()
        return {snapshot.id for snapshot in snapshots}

    data = fill(bucket, count=3)
    before = known()
    assert len(list(client.batch(sorted(data), bucket=bucket).get())) == 3
    (job,) = known() - before
    assert job.startswith("gbt-")
    assert client.job(job, "get-batch").wait(timeout=8, verbose=False).success


# --- PyTorch


def test_datasets_read_every_sample(client: Client, bucket: Bucket) -> None:
    data = fill(bucket, count=12, size=5000)
    by_name = AISMapDataset(ais_source_list=bucket)
    assert dict(by_name[n] for n in range(len(by_name))) == data
    parallel = AISParallelMapDataset(ais_source_list=bucket, num_workers=2)
    for n in range(12):
        name, buffer = parallel[n]
        with buffer:
            assert buffer.tobytes() == data[name]
    group = bucket.objects(obj_names=sorted(data)[:5])
    assert dict(AISMapDataset(ais_source_list=group)[n] for n in range(5)) == {
        name: data[name] for name in sorted(data)[:5]
    }
    for workers in (0, 2):
        streamed = AISIterDataset(ais_source_list=bucket)
        assert dict(DataLoader(streamed, batch_size=None, num_workers=workers)) == data
    sampler = DynamicBatchSampler(by_name, max_batch_size=20_000)
    assert [len(batch) for batch in sampler] == [4, 4, 4]


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "buffered"])
def test_the_batch_dataset_reads_every_sample(
    client: Client, bucket: Bucket, streaming: bool
) -> None:
    data = fill(bucket, count=12)
    dataset = AISBatchIterDataset(
        bucket, client, max_batch_size=5, streaming=streaming, cont_on_err=True
    )
    assert list(dataset) == sorted(data.items())
    loader = DataLoader(dataset, batch_size=None, num_workers=2)
    assert dict(loader) == data


def test_shards_are_read(client: Client, cluster: Cluster, bucket: Bucket) -> None:
    names = [f"{n:03}.{part}" for n in range(5) for part in ("img", "cls")]
    data = {name: content(name, 300) for name in names}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:") as archive:
        for name, value in data.items():
            info = tarfile.TarInfo(name)
            info.size = len(value)
            archive.addfile(info, io.BytesIO(value))
    bucket.object("s-0.tar").get_writer().put_content(buffer.getvalue())
    # Not list(): it would ask for the length, and the reader's own __len__ fails on any cluster.
    read = {key: parts for key, parts in AISShardReader(bucket_list=bucket)}
    assert sorted(parts["img"] for parts in read.values()) == sorted(
        value for name, value in data.items() if name.endswith("img")
    )
    stream = AISMultiShardStream([DataShard(cluster.endpoint, bucket.name, prefix="s-0.tar")])
    assert [pair[0] for pair in stream] == [data[name] for name in sorted(data)]
