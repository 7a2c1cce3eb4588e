"""Buckets as a file system of fsspec: its own test-suite, and what it does not look at."""

from __future__ import annotations

import asyncio
import datetime
import io
import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import forebay

fsspec = pytest.importorskip("fsspec")

from fsspec.tests.abstract import (  # noqa: E402
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)


@pytest.fixture
def fs(client: forebay.Client) -> Any:
    return fsspec.filesystem("forebay", endpoint=client.endpoint, timeout=20)


class Fixtures(AbstractFixtures):
    @pytest.fixture
    def fs(self, client: forebay.Client) -> Any:
        return fsspec.filesystem("forebay", endpoint=client.endpoint, timeout=20)

    @pytest.fixture
    def fs_path(self, bucket: forebay.Bucket) -> str:
        return bucket.name

    @pytest.fixture
    def fs_join(self) -> Callable[..., str]:
        return lambda *parts: "/".join(parts)

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return False


class TestCopy(Fixtures, AbstractCopyTests):
    pass


class TestGet(Fixtures, AbstractGetTests):
    pass


class TestOpen(Fixtures, AbstractOpenTests):
    pass


class TestPipe(Fixtures, AbstractPipeTests):
    pass


class TestPut(Fixtures, AbstractPutTests):
    pass


@pytest.fixture
def own(fs: Any, bucket: forebay.Bucket) -> str:
    """A bucket with some files."""
    fs.pipe({f"{bucket.name}/{name}": name.encode() for name in ("a/b/c", "a/b/d", "a/e", "f")})
    return bucket.name


def test_both_protocols_are_known_by_their_entry_points(own: str, fs: Any) -> None:
    assert fsspec.get_filesystem_class("fb") is type(fs)
    with fsspec.open(f"forebay://{own}/f", endpoint=fs.client.endpoint) as file:
        assert file.read() == b"f"
    with fsspec.open(f"fb://{own}/g.gz", "wt", compression="gzip", endpoint=fs.client.endpoint) as out:
        out.write("packed")
    assert fs.read_bytes(f"{own}/g.gz")[:2] == b"\x1f\x8b"


def test_a_level_is_listed_without_what_is_below(fs: Any, own: str, cluster: Any) -> None:
    assert fs.ls(own, detail=False) == [f"{own}/a", f"{own}/f"]
    assert fs.ls(f"{own}/a/") == [
        {"name": f"{own}/a/b", "size": 0, "type": "directory"},
        {"name": f"{own}/a/e", "size": 3, "type": "file"},
    ]
    assert fs.ls(f"{own}/f", detail=False) == [f"{own}/f"]
    assert own in fs.ls("", detail=False)
    assert fs.find(own, maxdepth=2) == [f"{own}/a/e", f"{own}/f"]
    assert fs.glob(f"{own}/**/c") == [f"{own}/a/b/c"]
    assert [found[0] for found in fs.walk(own)] == [own, f"{own}/a", f"{own}/a/b"]
    assert fs.du(own) == sum(map(len, ("a/b/c", "a/b/d", "a/e", "f")))


def test_a_file_tells_when_it_was_written_and_what_pins_its_content(fs: Any, own: str) -> None:
    path = f"{own}/f"
    age = datetime.datetime.now(tz=datetime.timezone.utc) - fs.modified(path)
    assert abs(age.total_seconds()) < 60
    before = fs.checksum(path)
    assert fs.checksum(path) == before
    fs.pipe_file(path, b"other")
    assert fs.checksum(path) != before


def test_failures_are_the_standard_errors(fs: Any, own: str, bucket: forebay.Bucket) -> None:
    for call in (fs.info, fs.cat_file, fs.rm, fs.ls, fs.open, fs.modified):
        with pytest.raises(FileNotFoundError):
            call(f"{own}/no")
    for call in (fs.cat_file, fs.rm_file, fs.open):
        with pytest.raises(IsADirectoryError):
            call(f"{own}/a")
    with pytest.raises(FileNotFoundError):
        fs.ls("no-such-bucket")
    with pytest.raises(FileExistsError):
        fs.mkdir(own)
    with pytest.raises(OSError, match="not empty"):
        fs.rmdir(own)
    with pytest.raises(io.UnsupportedOperation):
        fs.open(f"{own}/f", "ab")
    with pytest.raises(ValueError, match="provider"):
        fsspec.filesystem("fb", provider="tape")
    away = fsspec.filesystem("fb", endpoint="http://127.0.0.1:9", timeout=0.5)
    with pytest.raises(ConnectionError):
        away.exists(f"{own}/f")


def test_slices_of_many_files_are_one_batch(fs: Any, own: str, cluster: Any) -> None:
    content = bytes(range(100))
    fs.pipe({f"{own}/n{i:03}": content for i in range(200)})
    paths = [f"{own}/n{i:03}" for i in range(200)]
    before = cluster.count("forebay_http_requests_total", op="get")
    entries = cluster.count("forebay_batch_entries_total")
    assert fs.cat_ranges(paths, 10, 20) == [content[10:20]] * 200
    assert cluster.count("forebay_batch_entries_total") - entries == 200
    assert cluster.count("forebay_http_requests_total", op="get") == before
    assert fs.cat(paths)[paths[7]] == content
    assert len(fs.cat(own, recursive=True)) == 204


@pytest.mark.parametrize(
    "start,end",
    [(None, None), (0, 3), (5, None), (-3, None), (-5, -2), (2, -1), (3, 3), (5, 2), (8, 99), (99, 120)],
)
def test_slices_mean_what_they_mean_in_python(
    fs: Any, own: str, start: int | None, end: int | None
) -> None:
    content = b"0123456789"
    fs.pipe_file(f"{own}/digits", content)
    assert fs.cat_file(f"{own}/digits", start, end) == content[start:end]
    assert fs.cat_ranges([f"{own}/digits"], [start], [end]) == [content[start:end]]


def test_missing_slices_are_returned_or_raised(fs: Any, own: str) -> None:
    found, missing, folder = fs.cat_ranges([f"{own}/f", f"{own}/no", f"{own}/a"], 0, 1)
    assert found == b"f"
    assert isinstance(missing, FileNotFoundError) and isinstance(folder, IsADirectoryError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges([f"{own}/no"], 0, 1, on_error="raise")
    assert fs.cat([f"{own}/f", f"{own}/no"], on_error="omit") == {f"{own}/f": b"f"}


def test_large_files_go_in_parts_and_come_by_ranges(fs: Any, own: str, tmp_path: Path) -> None:
    content = b"".join(i.to_bytes(4, "big") * 1024 for i in range(10_000))
    with fs.open(f"{own}/large", "wb", block_size=5 << 20) as file:
        file.write(content)
    with fs.open(f"{own}/large", block_size=4 << 20) as file:
        assert file.read() == content
    fs.get(f"{own}/large", str(tmp_path / "large"))
    assert (tmp_path / "large").read_bytes() == content
    fs.put(str(tmp_path / "large"), f"{own}/again")
    assert fs.cat_file(f"{own}/again") == content
    fs.mv(f"{own}/again", f"{own}/moved")
    assert fs.cat_file(f"{own}/moved", -4) == content[-4:] and not fs.exists(f"{own}/again")


def test_a_file_whose_writing_fails_is_not_there(fs: Any, own: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), fs.open(f"{own}/half", "wb") as file:
        file.write(bytes(20 << 20))
        raise RuntimeError("no")
    assert not fs.exists(f"{own}/half")
    with pytest.raises(FileNotFoundError):
        fs.get_file(f"{own}/half", str(tmp_path / "half"))
    assert not (tmp_path / "half").exists()


def test_a_transaction_shows_all_of_its_files_at_its_end(fs: Any, own: str) -> None:
    with fs.transaction:
        for name in ("one", "two"):
            with fs.open(f"{own}/{name}", "wb") as file:
                file.write(name.encode())
        assert not fs.exists(f"{own}/one")
    assert fs.cat([f"{own}/one", f"{own}/two"]) == {f"{own}/one": b"one", f"{own}/two": b"two"}
    with pytest.raises(RuntimeError), fs.transaction:
        with fs.open(f"{own}/three", "wb") as file:
            file.write(b"3")
        raise RuntimeError("no")
    assert not fs.exists(f"{own}/three")


def test_buckets_are_made_and_removed(fs: Any, own: str) -> None:
    other = f"{own}-b"
    fs.makedirs(f"{other}/folder/inside", exist_ok=True)
    fs.copy(own, f"{other}/copy", recursive=True)
    assert fs.find(other) == [f"{other}/copy/{n}" for n in ("a/b/c", "a/b/d", "a/e", "f")]
    fs.rm(f"{other}/copy/a", recursive=True)
    assert fs.find(other) == [f"{other}/copy/f"]
    fs.rm(other, recursive=True)
    assert not fs.exists(other)
    fs.mkdir(other)
    fs.rmdir(other)
    assert not fs.exists(other)


def test_it_works_in_a_loop_of_ones_own(client: forebay.Client, own: str) -> None:
    async def use() -> tuple[Any, ...]:
        fs = fsspec.filesystem("fb", endpoint=client.endpoint, asynchronous=True)
        await fs._pipe_file(f"{own}/x", b"12345")
        contents = await asyncio.gather(*(fs._cat_file(f"{own}/x", i, i + 1) for i in range(5)))
        ranges = await fs._cat_ranges([f"{own}/x"] * 2, [0, 3], [2, 5])
        await fs._rm(f"{own}/x")
        return b"".join(contents), ranges, await fs._exists(f"{own}/x"), await fs._find(own)

    content, ranges, there, found = asyncio.run(use())
    assert (content, ranges, there, len(found)) == (b"12345", [b"12", b"45"], False, 4)


def read_in_child(fs: Any, path: str) -> Any:
    # `glob` goes by fsspec's loop, whose thread a fork does not copy.
    return fs.cat_file(path), fs.glob(f"{path}*"), fsspec.filesystem(**{
        "protocol": "fb", **fs.storage_options
    }).cat_file(path)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_it_pickles_and_works_after_a_fork(fs: Any, own: str, method: str) -> None:
    assert pickle.loads(pickle.dumps(fs)) == fs
    path = f"{own}/f"
    assert fs.glob(f"{path}*") == [path]
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply_async(read_in_child, (fs, path)).get(60) == (b"f", [path], b"f")


def test_a_bucket_of_a_cloud_is_reached_by_its_provider(
    client: forebay.Client, cluster: Any, fs: Any
) -> None:
    """A folder stands for the cloud: what is in it is found, and what is written lands there."""
    folder = cluster.folder_root / "fsspec"
    (folder / "in").mkdir(parents=True)
    (folder / "in/x").write_bytes(b"x")
    bucket = client.bucket("fsspec-folder").create(folder=folder)
    try:
        assert fs.find("fsspec-folder") == ["fsspec-folder/in/x"]
        fs.pipe_file("fsspec-folder/in/y", b"y")
        assert (folder / "in/y").read_bytes() == b"y"
    finally:
        bucket.delete()


LETS_GO_LATE = """
import os, sys, threading, time
import fsspec, pyarrow
fs, path = fsspec.url_to_fs(sys.argv[1])
held = [fs.open(path)]
def let_go():
    time.sleep(0.3)
    os.write(1, b"let go")
    held.clear()
threading.Thread(target=let_go, daemon=True).start()
"""


def test_a_program_ends_after_threads_of_pyarrow_have_let_go_of_its_files(
    own: str, client: forebay.Client
) -> None:
    pytest.importorskip("pyarrow")
    done = subprocess.run(
        [sys.executable, "-c", LETS_GO_LATE, f"fb://{own}/f"],
        env={**os.environ, "FOREBAY_ENDPOINT": client.endpoint},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "let go"), done.stderr


def test_files_have_what_files_of_fsspec_have(bucket: forebay.Bucket, fs: Any) -> None:
    lines = b"".join(b"line %d\n" % i for i in range(1000))
    bucket.object("d/a.txt").put(lines)
    path = f"{bucket.name}/d/a.txt"
    with fs.open(path) as file:
        assert (file.fs, file.path, file.mode, file.size) == (fs, path, "rb", len(lines))
        assert file.details["size"] == file.info()["size"] == len(lines)
        assert file.full_name == f"forebay://{path}"
        assert file.blocksize == fs.blocksize and file.kwargs == {}
        assert file.read(3) == b"lin" and file.loc == 3
        assert file.readuntil(b"\n") == b"e 0\n" and file.loc == 7
        assert file.readuntil(b"2\nline", 5) == b"line 1\nline 2\nline" and file.loc == 25
        assert pickle.loads(pickle.dumps(file)).path == path
        copied = pickle.loads(pickle.dumps(file))
        assert copied.loc == 25 and copied.read() == lines[25:]
        assert file.readuntil(b"#") == lines[25:]
    with fs.open(path, "wb", block_size=1 << 20) as file:
        file.write(b"xy")
        assert (file.fs, file.path, file.loc, file.blocksize) == (fs, path, 2, 1 << 20)
        with pytest.raises(ValueError):
            file.info()


def test_a_block_size_of_0_reads_nothing_far_ahead(bucket: forebay.Bucket, fs: Any) -> None:
    content = os.urandom(1 << 20)
    bucket.object("a").put(content)
    path = f"{bucket.name}/a"
    with fs.open(path, block_size=0) as file:
        assert file.read(10) == content[:10] and file.blocksize == 0
        assert file.read() == content[10:]
    with fs.open(path, "wb", block_size=0) as file:
        file.write(b"x")
    assert fs.cat(path) == b"x"
    with pytest.raises(ValueError, match="block_size"):
        fs.open(path, block_size=-1)


@pytest.mark.parametrize("cache", ["none", "readahead", "bytes", "blockcache", "first", "all"])
def test_fsspecs_own_caches_may_be_chosen(bucket: forebay.Bucket, fs: Any, cache: str) -> None:
    content = os.urandom(100_000)
    bucket.object("a").put(content)
    with fs.open(f"{bucket.name}/a", block_size=1000, cache_type=cache) as file:
        assert type(file.cache).name == cache
        assert file.seek(50_000) == 50_000 and file.read(3000) == content[50_000:53_000]
        assert file.seek(0) == 0 and file.read() == content
    bucket.object("a").put(content)
    file = fs.open(f"{bucket.name}/a", block_size=1000, cache_type="none")
    bucket.object("a").put(os.urandom(100_000))
    with pytest.raises(forebay.ObjectChanged):
        file.read()


@pytest.mark.parametrize("protocol", ["blockcache", "filecache", "simplecache"])
def test_caches_of_fsspec_lie_over_it(
    bucket: forebay.Bucket, fs: Any, protocol: str, tmp_path: Path
) -> None:
    content = os.urandom(300_000)
    bucket.object("a").put(content)
    options = {protocol: {"cache_storage": str(tmp_path)}, "fb": {"endpoint": fs.client.endpoint}}
    for _ in range(2):
        with fsspec.open(f"{protocol}::fb://{bucket.name}/a", **options) as file:
            assert file.seek(100_000) == 100_000 and file.read(70_000) == content[100_000:170_000]
            assert file.seek(0) == 0 and file.read() == content
