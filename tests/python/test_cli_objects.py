"""`forebay du`, `find`, `presign` and `archive`, and options that all commands have."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import uuid
import zipfile
from pathlib import Path

import pytest
from conftest import Cluster
from forebay_command import Command

NAMES = {"train/a/1.jpg": 10, "train/a/2.png": 20, "train/b.jpg": 30, "top.txt": 2000}


@pytest.fixture
def forebay(cluster: Cluster, tmp_path: Path) -> Command:
    return Command.of(cluster, tmp_path)


@pytest.fixture
def bucket(forebay: Command) -> str:
    """URI of a bucket with the objects of NAMES."""
    uri = f"ais://t-{uuid.uuid4().hex[:12]}"
    forebay.ok("mb", uri)
    for name, size in NAMES.items():
        forebay.ok("put", "-", f"{uri}/{name}", text="x" * size)
    return uri


@pytest.fixture
def shard(forebay: Command, bucket: str) -> str:
    """URI of a TAR with two members."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name in ("cat/1.jpg", "cat/1.cls"):
            info = tarfile.TarInfo(name)
            info.size = len(name)
            tar.addfile(info, io.BytesIO(name.encode()))
    (forebay.folder / "shard.tar").write_bytes(data.getvalue())
    forebay.ok("put", "shard.tar", f"{bucket}/shards/s.tar")
    return f"{bucket}/shards/s.tar"


def curl(*args: str) -> tuple[str, str]:
    """Body and status of a request by curl."""
    done = subprocess.run(
        ["curl", "-sS", "-w", "\n%{http_code}", *args],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    body, _, status = done.stdout.rpartition("\n")
    return body, status


def key_of(cluster: Cluster) -> dict[str, str]:
    key = cluster.info["s3_keys"][0]
    return {"AWS_ACCESS_KEY_ID": key["access"], "AWS_SECRET_ACCESS_KEY": key["secret"]}


def test_du_sums_bytes_and_objects_of_folders(forebay: Command, bucket: str) -> None:
    rows = json.loads(forebay.ok("du", bucket, "-o", "json"))
    assert [(row["uri"], row["objects"], row["bytes"], row["total"]) for row in rows] == [
        (f"{bucket}/train/", 3, 60, False),
        (bucket, 4, 2060, True),
    ]
    assert all(row["cached_bytes"] == row["bytes"] for row in rows)
    below = json.loads(forebay.ok("du", f"{bucket}/train/", "-o", "json"))
    assert [row["uri"] for row in below] == [f"{bucket}/train/a/", f"{bucket}/train/"]
    total = forebay.ok("du", bucket, "--depth", "0")
    assert total.split()[:4] == ["SIZE", "OBJECTS", "CACHED", "URI"]
    assert total.split()[4:] == ["2KiB", "4", "100%", bucket]


def test_du_of_a_prefix_that_matches_nothing_is_an_error(forebay: Command, bucket: str) -> None:
    assert forebay("du", f"{bucket}/none/").code == 4
    assert forebay("du", "ais://no-such-bucket").code == 4


def test_find_chooses_by_name_size_and_age(forebay: Command, bucket: str) -> None:
    def found(*conditions: str) -> list[str]:
        lines = forebay.ok("find", bucket, *conditions, "-o", "name").split()
        return [line.removeprefix(f"{bucket}/") for line in lines]

    assert found() == sorted(NAMES)
    assert found("--name", "*.jpg") == ["train/a/1.jpg", "train/b.jpg"]
    assert found("--name", "train/a/*") == ["train/a/1.jpg", "train/a/2.png"]
    assert found("--larger", "20", "--smaller", "1KiB") == ["train/b.jpg"]
    assert found("--newer", "1h") == sorted(NAMES) and found("--older", "1h") == []
    nothing = forebay("find", bucket, "--name", "*.gif", "-o", "json")
    assert (nothing.code, nothing.json) == (0, [])
    assert forebay("find", bucket, "--name", "[").code == 2


def test_a_presigned_url_reads_with_curl_until_it_expires(
    forebay: Command, cluster: Cluster, bucket: str
) -> None:
    forebay.ok("put", "-", f"{bucket}/a b+é.txt", text="content")
    url = forebay("presign", f"{bucket}/a b+é.txt", env=key_of(cluster)).out.strip()
    assert curl(url) == ("content", "200")
    assert curl(url.replace("Expires=3600", "Expires=3601"))[1] == "403"
    assert curl("-T", "/dev/null", url)[1] == "403"
    missing = forebay("presign", f"{bucket}/none", env=key_of(cluster)).out.strip()
    assert curl(missing)[1] == "404"


def test_a_presigned_url_writes_with_curl(
    forebay: Command, cluster: Cluster, bucket: str
) -> None:
    answer = forebay("presign", "--put", f"{bucket}/new", "-o", "json", env=key_of(cluster)).json
    (forebay.folder / "file").write_text("written")
    assert answer["method"] == "PUT" and answer["expires"].endswith("Z")
    assert curl("-T", str(forebay.folder / "file"), answer["url"])[1] == "200"
    assert forebay.ok("cat", f"{bucket}/new") == "written"


def test_presign_finds_the_key_in_the_file_of_credentials_and_says_when_there_is_none(
    forebay: Command, cluster: Cluster, bucket: str
) -> None:
    key = cluster.info["s3_keys"][0]
    (forebay.folder / ".aws").mkdir()
    (forebay.folder / ".aws/credentials").write_text(
        f"[default]\naws_access_key_id = {key['access']}\n"
        f"aws_secret_access_key = {key['secret']}\n"
    )
    url = forebay("presign", f"{bucket}/top.txt", env={"HOME": str(forebay.folder)}).out.strip()
    assert curl(url)[1] == "200"
    none = forebay("presign", f"{bucket}/top.txt", env={"HOME": "/nonexistent"})
    assert none.code == 5 and "forebay auth key create" in none.err
    assert forebay("presign", f"{bucket}/x", "--expires", "8d", env=key_of(cluster)).code == 2


def test_archive_lists_and_gets_members_of_a_tar(forebay: Command, shard: str) -> None:
    members = json.loads(forebay.ok("archive", "ls", shard, "-o", "json"))
    assert [(member["name"], member["size"]) for member in members] == [
        ("cat/1.jpg", 9),
        ("cat/1.cls", 9),
    ]
    assert forebay.ok("archive", "ls", shard, "--name", "*.cls", "-o", "name") == "cat/1.cls\n"
    forebay.ok("archive", "get", shard, "cat/1.jpg")
    assert (forebay.folder / "1.jpg").read_text() == "cat/1.jpg"
    assert forebay.ok("archive", "get", shard, "cat/1.cls", "-") == "cat/1.cls"
    missing = forebay("archive", "get", shard, "dog.jpg")
    assert missing.code == 4 and not (forebay.folder / "dog.jpg").exists()


def test_archive_reads_zip_and_compressed_tar(forebay: Command, bucket: str, shard: str) -> None:
    with zipfile.ZipFile(forebay.folder / "s.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("m.txt", "zipped")
    with tarfile.open(forebay.folder / "s.tgz", "w:gz") as tar:
        tar.add(forebay.folder / "s.zip", "inner.zip")
    for name in ("s.zip", "s.tgz"):
        forebay.ok("put", name, f"{bucket}/{name}")
    assert forebay.ok("archive", "get", f"{bucket}/s.zip", "m.txt", "-") == "zipped"
    assert forebay.ok("archive", "ls", f"{bucket}/s.tgz", "-o", "name") == "inner.zip\n"
    no_shard = forebay("archive", "ls", f"{bucket}/top.txt", "-o", "json")
    assert no_shard.code != 0 and "code" in json.loads(no_shard.err)["error"]


def test_help_finds_commands_by_a_word(forebay: Command) -> None:
    found = json.loads(forebay.ok("help", "-k", "presign", "-o", "json"))
    assert [row["command"] for row in found] == ["forebay presign"]
    assert "forebay job wait" in forebay.ok("help", "-k", "wait")
    assert "--delete" in forebay.ok("help", "sync")
    assert "Usage: forebay job wait" in forebay.ok("help", "job", "wait")
    assert forebay("help", "-k", "xyzzy").code == 4
    assert forebay("help", "xyzzy").code == 2


def test_a_table_is_printed_without_titles_on_demand(forebay: Command, bucket: str) -> None:
    assert forebay.ok("ls", bucket).splitlines()[0].split() == ["SIZE", "CACHED", "NAME"]
    bare = forebay.ok("ls", bucket, "--no-headers").splitlines()
    assert len(bare) == len(NAMES) and bare[0].split() == ["2KiB", "yes", "top.txt"]


def test_rm_prints_one_json_document(forebay: Command, bucket: str) -> None:
    one = json.loads(forebay.ok("rm", f"{bucket}/top.txt", "-o", "json"))
    assert one == [{"uri": f"{bucket}/top.txt", "removed": True}]
    both = forebay("rm", "-r", f"{bucket}/train/a/", f"{bucket}/train/b", "--yes", "-o", "json")
    assert both.code == 0 and [job["objects"] for job in both.json] == [2, 1]
    assert forebay.names(bucket) == []


def test_rm_dry_run_names_what_would_be_removed(forebay: Command, bucket: str) -> None:
    shown = forebay("rm", "-r", f"{bucket}/train/", "--dry-run", "-o", "name")
    assert shown.code == 0 and len(shown.out.split()) == 3
    assert forebay("rm", f"{bucket}/top.txt", "--dry-run").code == 0
    assert forebay("rm", f"{bucket}/none", "--dry-run").code == 4
    assert len(forebay.names(bucket)) == len(NAMES)


def test_rm_of_a_prefix_that_matches_nothing_is_an_error(forebay: Command, bucket: str) -> None:
    missing = forebay("rm", "-r", f"{bucket}/none/", "--yes")
    assert missing.code == 4 and "none/" in missing.err
