"""`forebay cp`, `mv` and `sync` between buckets and local folders."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Cluster, Minio
from forebay_command import Command


@pytest.fixture
def forebay(cluster: Cluster, tmp_path: Path) -> Command:
    return Command.of(cluster, tmp_path)


@pytest.fixture
def make(forebay: Command) -> Callable[..., str]:
    """Makes a bucket with objects whose content is their name; returns its URI."""

    def bucket(*names: str) -> str:
        uri = f"ais://t-{uuid.uuid4().hex[:12]}"
        forebay.ok("mb", uri)
        for name in names:
            forebay.ok("put", "-", f"{uri}/{name}", text=name)
        return uri

    return bucket


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def test_put_takes_several_files_under_a_prefix(
    forebay: Command, make: Callable[..., str]
) -> None:
    bucket = make()
    write(forebay.folder, "a", "b", "c")
    forebay.ok("put", "a", "b", "c", f"{bucket}/dst/")
    assert forebay.names(bucket) == ["dst/a", "dst/b", "dst/c"]
    refused = forebay("put", "a", "b", f"{bucket}/dst")
    assert refused.code == 2 and "cannot all become" in refused.err


def test_cp_copies_objects_inside_and_between_buckets(
    forebay: Command, make: Callable[..., str]
) -> None:
    one, two = make("cat/1.jpg", "cat/2.jpg", "cat/sub/3.jpg", "category/4.jpg"), make()
    forebay.ok("cp", f"{one}/cat/1.jpg", f"{two}/new.jpg")
    forebay.ok("cp", f"{one}/cat/1.jpg", f"{one}/cat/2.jpg", f"{two}/pics/")
    forebay.ok("cp", "-r", f"{one}/cat/", f"{two}/all")
    forebay.ok("cp", "-r", f"{one}/cat", f"{two}/text", "--exclude", "*/sub/*")
    assert forebay.names(two) == [
        "all/1.jpg",
        "all/2.jpg",
        "all/sub/3.jpg",
        "new.jpg",
        "pics/1.jpg",
        "pics/2.jpg",
        "text/cat/1.jpg",
        "text/cat/2.jpg",
        "text/category/4.jpg",
    ]
    assert forebay.ok("cat", f"{two}/all/sub/3.jpg") == "cat/sub/3.jpg"


def test_cp_copies_between_buckets_and_local_folders(
    forebay: Command, make: Callable[..., str]
) -> None:
    bucket = make()
    write(forebay.folder, "set/a.jpg", "set/b/c.jpg", "set/d.txt")
    forebay.ok("cp", "-r", "set", f"{bucket}/train", "--include", "*.jpg")
    assert forebay.names(bucket) == ["train/a.jpg", "train/b/c.jpg"]
    forebay.ok("cp", "-r", f"{bucket}/train/", "back")
    assert (forebay.folder / "back/b/c.jpg").read_text() == "set/b/c.jpg"
    forebay.ok("cp", f"{bucket}/train/a.jpg", ".")
    assert (forebay.folder / "a.jpg").read_text() == "set/a.jpg"
    refused = forebay("cp", "set/a.jpg", "there")
    assert refused.code == 2 and "neither" in refused.err


def test_cp_that_matches_nothing_is_an_error(forebay: Command, make: Callable[..., str]) -> None:
    bucket = make("a/1")
    for source in (["-r", f"{bucket}/none/"], [f"{bucket}/none"], ["-r", "no-folder"]):
        missing = forebay("cp", *source, f"{bucket}/to/")
        assert missing.code == 4 and missing.err, (source, missing)
    filtered = forebay("cp", "-r", f"{bucket}/a/", f"{bucket}/to/", "--include", "*.png")
    assert filtered.code == 4 and "--include" in filtered.err
    assert forebay.names(bucket) == ["a/1"]


def test_cp_of_several_sources_copies_the_others_when_one_is_missing(
    forebay: Command, make: Callable[..., str]
) -> None:
    bucket = make("a", "b")
    part = forebay("cp", f"{bucket}/a", f"{bucket}/no", f"{bucket}/b", f"{bucket}/to/")
    assert part.code == 3 and "no" in part.err
    assert forebay.names(f"{bucket}/to/") == ["to/a", "to/b"]


def test_cp_reports_each_copy_in_json(forebay: Command, make: Callable[..., str]) -> None:
    bucket = make("x/1", "x/22")
    copied = json.loads(forebay.ok("cp", "-r", f"{bucket}/x/", f"{bucket}/y", "-o", "json"))
    assert sorted((row["to"], row["size"], row["done"]) for row in copied) == [
        (f"{bucket}/y/1", 3, True),
        (f"{bucket}/y/22", 4, True),
    ]
    failed = forebay("cp", "-r", f"{bucket}/none", f"{bucket}/y", "-o", "json")
    assert failed.code == 4 and json.loads(failed.err)["error"]["code"] == "object_not_found"


@pytest.mark.parametrize("verb", ["cp", "mv"])
def test_a_dry_run_shows_the_steps_and_changes_nothing(
    forebay: Command, make: Callable[..., str], verb: str
) -> None:
    bucket = make("x/1", "x/2")
    shown = forebay(verb, "-r", f"{bucket}/x/", f"{bucket}/y", "--dry-run")
    assert shown.code == 0 and f"{bucket}/y/1" in shown.out and "dry run: 2" in shown.err
    assert forebay.names(bucket) == ["x/1", "x/2"]


def test_mv_removes_a_source_only_when_its_copy_is_equal(
    forebay: Command, make: Callable[..., str]
) -> None:
    bucket, other = make("x/1", "x/2", "y"), make()
    forebay.ok("mv", f"{bucket}/y", f"{bucket}/z")
    forebay.ok("mv", "-r", f"{bucket}/x/", f"{other}/moved")
    assert forebay.names(bucket) == ["z"]
    assert forebay.names(other) == ["moved/1", "moved/2"]
    write(forebay.folder, "local/a")
    forebay.ok("mv", "-r", "local", f"{bucket}/local")
    assert not (forebay.folder / "local/a").exists()
    forebay.ok("mv", f"{bucket}/local/a", "back")
    assert (forebay.folder / "back").read_text() == "local/a"
    assert forebay.names(bucket) == ["z"]


def test_mv_keeps_every_source_whose_copy_fails(
    forebay: Command, make: Callable[..., str]
) -> None:
    bucket = make("x/1", "x/2")
    gone = forebay("mv", "-r", f"{bucket}/x/", "ais://no-such-bucket/to")
    assert gone.code == 4 and "does not exist" in gone.err
    # A folder stands where one of the files would be.
    (forebay.folder / "to/1").mkdir(parents=True)
    part = forebay("mv", "-r", f"{bucket}/x/", "to")
    assert part.code == 3, part
    assert forebay.names(bucket) == ["x/1"]
    assert (forebay.folder / "to/2").read_text() == "x/2"


def test_a_move_into_itself_is_refused_before_anything_is_lost(
    forebay: Command, make: Callable[..., str]
) -> None:
    bucket = make("a/a", "a/a/a", "o")
    for line in (["-r", f"{bucket}/a/", f"{bucket}/a/a"], [f"{bucket}/o", f"{bucket}/o"]):
        refused = forebay("mv", *line)
        assert refused.code == 2 and "is a source too" in refused.err, refused
    assert forebay.names(bucket) == ["a/a", "a/a/a", "o"]


def test_sync_copies_what_is_missing_or_different_and_nothing_else(
    forebay: Command, make: Callable[..., str]
) -> None:
    bucket = make()
    write(forebay.folder, "set/a", "set/b/c", "set/d")
    forebay.ok("sync", "set", f"{bucket}/set")
    assert forebay.names(bucket) == ["set/a", "set/b/c", "set/d"]
    assert json.loads(forebay.ok("sync", "set", f"{bucket}/set", "-o", "json")) == []
    # The same size and an older time: only the checksum differs.
    (forebay.folder / "set/a").write_text("SET/A")
    write(forebay.folder, "set/new")
    steps = json.loads(forebay.ok("sync", "set", f"{bucket}/set", "-o", "json"))
    assert sorted((Path(step["from"]).name, step["reason"]) for step in steps) == [
        ("a", "checksum"),
        ("new", "missing"),
    ]
    assert forebay.ok("cat", f"{bucket}/set/a") == "SET/A"


def test_sync_goes_between_buckets_and_to_a_folder(
    forebay: Command, make: Callable[..., str]
) -> None:
    one, two = make("x/1", "x/2", "xy"), make("to/2")
    forebay.ok("sync", f"{one}/x", f"{two}/to")
    assert forebay.names(two) == ["to/1", "to/2"]
    assert forebay.ok("cat", f"{two}/to/2") == "x/2"
    forebay.ok("sync", two, "out")
    assert (forebay.folder / "out/to/1").read_text() == "x/1"
    assert json.loads(forebay.ok("sync", two, "out", "-o", "json")) == []


def test_sync_removes_only_with_delete_and_after_a_yes(
    forebay: Command, make: Callable[..., str]
) -> None:
    one, two = make("1"), make("1", "2", "keep.txt")
    forebay.ok("sync", one, two)
    assert forebay.names(two) == ["1", "2", "keep.txt"]
    asked = forebay("sync", one, two, "--delete")
    assert asked.code == 2 and "--yes" in asked.err
    shown = forebay("sync", one, two, "--delete", "--dry-run")
    assert shown.code == 0 and "remove" in shown.out
    assert forebay.names(two) == ["1", "2", "keep.txt"]
    forebay.ok("sync", one, two, "--delete", "--yes", "--exclude", "*.txt")
    assert forebay.names(two) == ["1", "keep.txt"]


def test_sync_of_nothing_removes_nothing(forebay: Command, make: Callable[..., str]) -> None:
    bucket = make("1", "2")
    (forebay.folder / "empty").mkdir()
    for source in ("empty", "missing", make()):
        failed = forebay("sync", source, bucket, "--delete", "--yes")
        assert failed.code == 4, (source, failed)
    assert forebay.names(bucket) == ["1", "2"]


def test_sync_lists_what_failed_and_removes_nothing_then(
    forebay: Command, make: Callable[..., str]
) -> None:
    bucket = make("a", "b")
    (forebay.folder / "out/a").mkdir(parents=True)
    write(forebay.folder, "out/extra")
    part = forebay("sync", bucket, "out", "--delete", "--yes", "-o", "json")
    assert part.code == 3, part
    failed = {Path(step["from"]).name for step in part.json if not step["done"]}
    assert failed == {"a"} and "nothing was removed" in part.err
    assert (forebay.folder / "out/extra").exists()
    assert (forebay.folder / "out/b").read_text() == "b"


def test_objects_go_to_a_bucket_of_a_cloud_and_back(
    start_cluster: Callable[..., Cluster], minio: Minio, tmp_path: Path
) -> None:
    name, own = minio.new_bucket()
    cluster = start_cluster(targets=2, env=minio.env)
    forebay = Command.of(cluster, tmp_path)
    forebay.ok("mb", "ais://native")
    for key in ("x/1", "x/2", "y"):
        forebay.ok("put", "-", f"ais://native/{key}", text=key)
    cloud = f"s3://{name}"
    forebay.ok("cp", "-r", "ais://native/x/", f"{cloud}/x")
    forebay.ok("mv", "ais://native/y", f"{cloud}/moved")
    assert own.get_object(Bucket=name, Key="moved")["Body"].read() == b"y"
    assert forebay.names("ais://native") == ["x/1", "x/2"]
    # Another client's object, of which the cluster has no checksum of its own.
    own.put_object(Bucket=name, Key="x/2", Body=b"X/2")
    forebay.ok("evict", cloud, "--wait")
    steps = json.loads(forebay.ok("sync", f"{cloud}/x", "ais://native/x", "-o", "json"))
    # Times of one minute do not show which side is newer; the bytes do.
    assert [(step["to"], step["reason"]) for step in steps] == [("ais://native/x/2", "checksum")]
    assert forebay.ok("cat", "ais://native/x/2") == "X/2"
    assert json.loads(forebay.ok("sync", f"{cloud}/x", "ais://native/x", "-o", "json")) == []
    forebay.ok("sync", cloud, "out")
    assert (tmp_path / "out/x/2").read_text() == "X/2"
    assert json.loads(forebay.ok("sync", cloud, "out", "-o", "json")) == []
