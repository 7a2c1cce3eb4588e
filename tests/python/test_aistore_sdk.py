"""The unmodified AIStore SDK, its datasets included, works against our cluster."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from aistore.pytorch import (
    AISIterDataset,
    AISMapDataset,
    AISMultiShardStream,
    AISShardReader,
)
from aistore.pytorch.dynamic_sampler import DynamicBatchSampler
from aistore.sdk import ArchiveConfig, Bucket, Client, DataShard, ListObjectFlag
from aistore.sdk.archive_config import ArchiveMode
from aistore.sdk.errors import ErrBckAlreadyExists, ErrBckNotFound, ErrObjNotFound
from conftest import Cluster
from requests.adapters import HTTPAdapter
from torch.utils.data import DataLoader

MIB = 1 << 20


def content(name: str, size: int) -> bytes:
    """Bytes that only this name has."""
    return hashlib.shake_128(name.encode()).digest(size)


def same(got: bytes, want: bytes) -> bool:
    """Equality that does not print megabytes when it fails."""
    return got == want


def sizes() -> dict[str, int]:
    """The 1,000 objects: empty ones, 1 KiB, one of 64 MiB, names in several scripts."""
    names = {"large/64mib.bin": 64 * MIB, "empty": 0, "ä ö/日本語 😀.txt": 1024}
    names |= {f"punctuation/100% #{n}?&+=.bin": n for n in range(7)}
    n = 0
    while len(names) < 1000:
        names[f"train/{n % 10}/größe-{n:04}.bin"] = 0 if n % 100 == 0 else 1024
        n += 1
    return names


class Hops:
    """Every HTTP exchange of the SDK, each hop of a redirect by itself."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.urls: list[str] = []

    @property
    def redirects(self) -> int:
        return sum(300 <= status < 400 for status in self.statuses)


@pytest.fixture
def hops(monkeypatch: pytest.MonkeyPatch) -> Hops:
    seen = Hops()
    send = HTTPAdapter.send

    def counted(
        self: HTTPAdapter, request: requests.PreparedRequest, *args: object, **options: object
    ) -> requests.Response:
        response = send(self, request, *args, **options)
        seen.statuses.append(response.status_code)
        seen.urls.append(request.url or "")
        return response

    monkeypatch.setattr(HTTPAdapter, "send", counted)
    return seen


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Client:
    return Client(cluster.endpoint)


@pytest.fixture
def bucket(client: Client, request: pytest.FixtureRequest) -> Iterator[Bucket]:
    name = request.node.name.removeprefix("test_").replace("[", "-").replace("]", "")[:60]
    own = client.bucket(name)
    own.create()
    yield own
    own.delete(missing_ok=True)


@pytest.fixture(scope="module")
def thousand(client: Client) -> Iterator[Bucket]:
    """A bucket with the 1,000 objects, put by the SDK."""
    own = client.bucket("thousand")
    own.create()
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda item: own.object(item[0]).get_writer().put_content(content(*item)),
                sizes().items(),
            )
        )
    yield own
    own.delete()


def test_cluster_is_described(client: Client, cluster: Cluster) -> None:
    info = client.cluster().get_info()
    assert set(info.tmap) == {target["id"] for target in cluster.targets}
    assert info.uuid and int(info.version) > 0
    assert client.cluster().is_ready()


def test_bucket_life(client: Client) -> None:
    bucket = client.bucket("life")
    with pytest.raises(ErrBckNotFound):
        bucket.list_objects()
    bucket.create()
    with pytest.raises(ErrBckAlreadyExists):
        bucket.create()
    bucket.create(exist_ok=True)
    assert "life" in [listed.name for listed in client.cluster().list_buckets()]
    assert bucket.head()["Ais-Bucket-Props"]
    assert bucket.list_all_objects() == []
    bucket.delete()
    with pytest.raises(ErrBckNotFound):
        bucket.delete()
    bucket.delete(missing_ok=True)
    assert "life" not in [listed.name for listed in client.cluster().list_buckets()]


def test_a_thousand_objects_are_listed_with_their_sizes(thousand: Bucket) -> None:
    listed = thousand.list_all_objects(props="name,size")
    assert [entry.name for entry in listed] == sorted(sizes(), key=str.encode)
    assert {entry.name: entry.size for entry in listed} == sizes()
    by_pages = list(thousand.list_objects_iter(page_size=300, props="name,size"))
    assert [entry.name for entry in by_pages] == [entry.name for entry in listed]
    some = thousand.list_all_objects(prefix="train/3/")
    assert [e.name for e in some] == sorted(n for n in sizes() if n.startswith("train/3/"))
    one_page = thousand.list_objects(page_size=10)
    assert len(one_page.entries) == 10 and one_page.continuation_token


def test_every_object_comes_back_as_it_was_put(thousand: Bucket) -> None:
    def check(item: tuple[str, int]) -> bool:
        return thousand.object(item[0]).get_reader().read_all() == content(*item)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(check, sizes().items()))


def test_direct_reads_need_no_redirect(thousand: Bucket, hops: Hops, cluster: Cluster) -> None:
    names = [name for name, size in sizes().items() if size < MIB][:200]
    for name in names:
        reader = thousand.object(name).get_reader(direct=True)
        assert reader.read_all() == content(name, sizes()[name])
    assert hops.redirects == 0
    objects = [url for url in hops.urls if "/v1/objects/" in url]
    assert len(objects) == 200
    assert not [url for url in objects if url.startswith(cluster.endpoint)]
    # The same reads by way of the gateway are one redirect each.
    thousand.object(names[0]).get_reader().read_all()
    assert hops.redirects == 1


def test_ranges(thousand: Bucket) -> None:
    large = thousand.object("large/64mib.bin")
    whole = content("large/64mib.bin", 64 * MIB)
    assert same(large.get_reader(byte_range="bytes=0-9").read_all(), whole[:10])
    middle = large.get_reader(byte_range="bytes=33554430-33554440").read_all()
    assert same(middle, whole[33554430:33554441])
    assert same(large.get_reader(byte_range="bytes=-5").read_all(), whole[-5:])
    assert same(large.get_reader(byte_range="bytes=67108860-").read_all(), whole[-4:])
    assert same(b"".join(large.get_reader(chunk_size=MIB)), whole)
    with large.get_reader().as_file() as file:
        assert file.read(100) == whole[:100]
        assert file.read(100) == whole[100:200]
    with large.get_reader(num_workers=4).read_all() as buffer:
        assert same(buffer.tobytes(), whole)


def test_properties(bucket: Bucket) -> None:
    item = bucket.object("x")
    item.get_writer().put_content(b"hello")
    props = item.props
    assert props.size == 5
    assert (props.checksum_type, props.checksum_value) == ("xxhash2", "26c7827d889f6da3")
    assert props.obj_version == "1"
    attributes = item.get_reader().attributes
    assert attributes.size == 5 and attributes.checksum_value == "26c7827d889f6da3"
    item.get_writer().put_content(b"hello again")
    assert item.head()["Ais-Version"] == "2"
    item.get_writer().set_custom_props({"label": "cat"})
    assert bucket.object("x").props.custom_metadata == {"label": "cat"}


def test_put_file_and_put_files(bucket: Bucket, tmp_path: object) -> None:
    folder = tmp_path / "data"  # type: ignore[operator]
    (folder / "inner").mkdir(parents=True)
    (folder / "a.bin").write_bytes(content("a", 5000))
    (folder / "inner/b.bin").write_bytes(content("b", 6000))
    bucket.object("single").get_writer().put_file(folder / "a.bin")
    assert bucket.object("single").get_reader().read_all() == content("a", 5000)
    bucket.put_files(str(folder), recursive=True, prepend="many/")
    assert bucket.object("many/inner/b.bin").get_reader().read_all() == content("b", 6000)


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "buffered"])
def test_a_batch_of_100_is_in_request_order(
    client: Client, thousand: Bucket, streaming: bool
) -> None:
    names = [name for name, size in sizes().items() if 0 < size < MIB][:99]
    names.insert(50, "not/there")
    batch = client.batch(names, bucket=thousand, streaming_get=streaming)
    answers = list(batch.get())
    assert [info.obj_name for info, _ in answers] == names
    for info, data in answers:
        if info.obj_name == "not/there":
            assert data == b""
            # Only the buffered form has words for it; the stream has a marked, empty member.
            assert streaming or "ais://thousand/not/there" in info.err_msg
        else:
            assert data == content(info.obj_name, sizes()[info.obj_name])


def test_batches_of_a_missing_bucket_say_so(client: Client) -> None:
    batch = client.batch(["x"], bucket=client.bucket("nowhere"))
    with pytest.raises(ErrBckNotFound):
        list(batch.get())


def test_deleted_objects_are_gone(client: Client, bucket: Bucket) -> None:
    for name in ("a", "b", "ü/c"):
        bucket.object(name).get_writer().put_content(name.encode())
    bucket.object("ü/c").delete()
    with pytest.raises(ErrObjNotFound):
        bucket.object("ü/c").get_reader().read_all()
    with pytest.raises(ErrObjNotFound):
        bucket.object("ü/c").delete()
    assert [entry.name for entry in bucket.list_all_objects()] == ["a", "b"]
    client.job(bucket.objects(obj_names=["a", "b"]).delete()).wait(timeout=30)
    assert bucket.list_all_objects() == []


@pytest.fixture(scope="module")
def samples(client: Client) -> Iterator[tuple[Bucket, dict[str, bytes]]]:
    """Ten objects of 1 MB."""
    own = client.bucket("samples")
    own.create()
    data = {f"sample-{n:02}": content(f"sample-{n}", 1_000_000) for n in range(10)}
    for name, value in data.items():
        own.object(name).get_writer().put_content(value)
    yield own, data
    own.delete()


def test_map_dataset_reads_every_sample(samples: tuple[Bucket, dict[str, bytes]]) -> None:
    bucket, data = samples
    dataset = AISMapDataset(ais_source_list=bucket)
    assert len(dataset) == 10
    assert dict(dataset[n] for n in range(10)) == data
    with pytest.raises(IndexError):
        dataset[10]


@pytest.mark.parametrize("workers", [0, 2])
def test_iter_dataset_reads_every_sample_once(
    samples: tuple[Bucket, dict[str, bytes]], workers: int
) -> None:
    bucket, data = samples
    dataset = AISIterDataset(ais_source_list=bucket)
    loader = DataLoader(dataset, batch_size=None, num_workers=workers)
    seen = list(loader)
    assert len(seen) == 10
    assert dict(seen) == data


@pytest.mark.parametrize(
    ("megabytes", "batches"), [(4, [4, 4, 2]), (3, [3, 3, 3, 1])], ids=["4MB", "3MB"]
)
def test_dynamic_batch_sampler_fills_batches_up_to_their_size(
    samples: tuple[Bucket, dict[str, bytes]], megabytes: int, batches: list[int]
) -> None:
    bucket, data = samples
    dataset = AISMapDataset(ais_source_list=bucket)
    sampler = DynamicBatchSampler(dataset, max_batch_size=megabytes * 1_000_000)
    assert [len(batch) for batch in sampler] == batches
    loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=list)
    read = [dict(batch) for batch in loader]
    assert [len(batch) for batch in read] == batches
    assert {name: value for batch in read for name, value in batch.items()} == data


SHARDS = 3
SAMPLES = 20


def shard_members(shard: int) -> dict[str, bytes]:
    """Samples of two parts, in the archive's order."""
    names = [f"d{shard}/{n:03}.{part}" for n in range(SAMPLES) for part in ("img", "cls")]
    return {name: content(name, 3000 if name.endswith("img") else 5) for name in names}


def tar_of(members: dict[str, bytes], mode: str = "w:") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@pytest.fixture(scope="module")
def sharded(client: Client) -> Iterator[Bucket]:
    """A bucket with TAR shards only."""
    own = client.bucket("sharded")
    own.create()
    for n in range(SHARDS):
        own.object(f"s-{n}.tar").get_writer().put_content(tar_of(shard_members(n)))
    yield own
    own.delete()


def test_members_of_shards_are_read_by_name_and_by_match(sharded: Bucket) -> None:
    members = shard_members(1)
    shard = sharded.object("s-1.tar")
    for name, data in members.items():
        reader = shard.get_reader(archive_config=ArchiveConfig(archpath=name))
        assert reader.read_all() == data
    for mode, text, want in [
        (ArchiveMode.SUFFIX, ".cls", [n for n in members if n.endswith(".cls")]),
        (ArchiveMode.PREFIX, "d1/00", [n for n in members if n.startswith("d1/00")]),
        (ArchiveMode.SUBSTR, "/01", [n for n in members if "/01" in n]),
        (ArchiveMode.REGEXP, r"1[0-3]\.img$", [f"d1/01{n}.img" for n in range(4)]),
        (ArchiveMode.WDSKEY, "d1/007", ["d1/007.img", "d1/007.cls"]),
    ]:
        config = ArchiveConfig(regex=text, mode=mode)
        answer = shard.get_reader(archive_config=config).read_all()
        with tarfile.open(fileobj=io.BytesIO(answer), mode="r:") as archive:
            got = {m.name: getattr(archive.extractfile(m), "read", bytes)() for m in archive}
        assert got == {name: members[name] for name in want}, mode
        assert list(got) == want
    with pytest.raises(ErrObjNotFound, match="d1/none in ais://sharded/s-1.tar does not exist"):
        shard.get_reader(archive_config=ArchiveConfig(archpath="d1/none")).read_all()


def test_shards_are_listed_with_their_members(sharded: Bucket) -> None:
    members = shard_members(2)
    for page_size in (0, 7):
        listed = sharded.list_archive("s-2.tar", props="name,size", page_size=page_size)
        assert [(e.name, e.size) for e in listed] == [
            (f"s-2.tar/{name}", len(members[name])) for name in sorted(members)
        ]
        assert all(entry.flags == 192 for entry in listed)
    with_shard = sharded.list_archive("s-2.tar", include_archive_obj=True)
    assert (with_shard[0].name, with_shard[0].flags) == ("s-2.tar", 576)
    every = sharded.list_all_objects(flags=[ListObjectFlag.ARCH_DIR])
    assert len(every) == SHARDS * (1 + 2 * SAMPLES)


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "buffered"])
@pytest.mark.parametrize("output", [".tar", ".tgz", ".tar.gz", ".zip"])
def test_a_batch_has_members_of_shards_and_ranges_in_every_format(
    client: Client, sharded: Bucket, output: str, streaming: bool
) -> None:
    batch = client.batch(bucket=sharded, output_format=output, streaming_get=streaming)
    want: list[tuple[str, str, bytes]] = []
    for n in range(SHARDS):
        shard = f"s-{n}.tar"
        for name, data in reversed(shard_members(n).items()):
            batch.add(shard, archpath=name)
            want.append((shard, name, data))
        batch.add(shard, archpath=f"d{n}/none")
        want.append((shard, f"d{n}/none", b""))
    whole = tar_of(shard_members(0))
    batch.add("s-0.tar", start=512, length=3000)
    want.append(("s-0.tar", "", whole[512:3512]))
    batch.add("s-1.tar", archpath="d1/005.img", start=100, length=-1)
    # Its name in the archive is that of the whole member, which a zip's reader cannot distinguish.
    want.append(("s-1.tar", "d1/005.img", shard_members(1)["d1/005.img"][100:]))
    answers = list(batch.get())
    got = [(info.obj_name, info.archpath or "") for info, _ in answers]
    assert got == [w[:2] for w in want]
    for (info, data), (_, name, expected) in zip(answers, want, strict=True):
        if name == "d1/005.img" and output == ".zip":
            continue
        assert data == expected, (info.obj_name, info.archpath)


def test_shard_reader_yields_the_samples_of_our_shards(sharded: Bucket) -> None:
    want: dict[tuple[int, str], dict[str, bytes]] = {}
    for n in range(SHARDS):
        for name, data in shard_members(n).items():
            key, part = name.split(".")
            want.setdefault((n, key), {})[part] = data
    # Not list(): it would ask for the length, and the reader's own __len__ fails on any cluster.
    seen = [sample for sample in AISShardReader(bucket_list=sharded)]
    parts = sorted((sample["img"], sample["cls"]) for _, sample in seen)
    assert parts == sorted((sample["img"], sample["cls"]) for sample in want.values())


def test_multi_shard_stream_pairs_the_members_of_our_shards(
    cluster: Cluster, sharded: Bucket
) -> None:
    shards = [f"s-{n}.tar" for n in range(2)]
    streams = [DataShard(cluster.endpoint, sharded.name, prefix=shard) for shard in shards]
    pairs = list(AISMultiShardStream(data_sources=streams))
    ordered = [[d for _, d in sorted(shard_members(n).items())] for n in range(2)]
    assert pairs == list(zip(*ordered, strict=True))
