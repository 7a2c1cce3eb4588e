"""The S3 front as s3cmd uses it: signatures, listings and sync of its own making."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Cluster
from forebay_s3 import (
    ACCESS,
    LARGE_OBJECT_BYTES,
    ODD_NAMES,
    REGION,
    SECRET,
    content,
    objects,
    program,
    read_files,
    run,
    write_files,
)


@pytest.fixture
def s3cmd(s3_cluster: Cluster, tmp_path: Path) -> Callable[..., str]:
    """`s3cmd("ls", …)` -> what the command says."""
    # s3cmd signs no path of an endpoint: it needs S3 at `/`.
    config, address = tmp_path / "s3cfg", s3_cluster.endpoint.removeprefix("http://")
    config.write_text(
        f"[default]\naccess_key = {ACCESS}\nsecret_key = {SECRET}\nbucket_location = {REGION}\n"
        f"host_base = {address}\nhost_bucket = {address}\nuse_https = False\n"
        "multipart_chunk_size_mb = 5\nmax_retries = 1\n"
    )
    command = program("s3cmd", "s3cmd")
    return lambda *words: run([command, "-c", config, "--no-progress", *words], {"LANG": "C.UTF-8"})


def test_sync_goes_both_ways_and_leaves_nothing_to_do(
    s3cmd: Callable[..., str], s3: Any, bucket: str, tmp_path: Path
) -> None:
    up, down, there = tmp_path / "up", tmp_path / "down", f"s3://{bucket}/set/"
    files = {name: name.encode() for name in ODD_NAMES}
    files |= {"d/large": content(LARGE_OBJECT_BYTES), "d/empty": b""}
    write_files(up, files)
    s3cmd("sync", f"{up}/", there)
    assert objects(s3, bucket) == {f"set/{name}": body for name, body in files.items()}
    assert s3.head_object(Bucket=bucket, Key="set/d/large")["ETag"].endswith('-4"')
    assert "upload: " not in s3cmd("sync", f"{up}/", there)
    down.mkdir()
    s3cmd("sync", there, f"{down}/")
    assert read_files(down) == files
    assert "download: " not in s3cmd("sync", there, f"{down}/")
    (up / ODD_NAMES[0]).unlink()
    s3cmd("sync", "--delete-removed", f"{up}/", there)
    assert objects(s3, bucket) == {f"set/{n}": body for n, body in read_files(up).items()}


def test_copies_moves_lists_and_deletions(
    s3cmd: Callable[..., str], s3: Any, bucket: str, tmp_path: Path
) -> None:
    large, there = content(LARGE_OBJECT_BYTES), f"s3://{bucket}"
    write_files(tmp_path, {"large": large})
    s3cmd("put", tmp_path / "large", f"{there}/d/a")
    s3cmd("cp", f"{there}/d/a", f"{there}/b c")
    s3cmd("mv", f"{there}/d/a", f"{there}/d/ü")
    assert objects(s3, bucket) == {"b c": large, "d/ü": large}
    listed = [line.split(maxsplit=3)[-1] for line in s3cmd("ls", there).splitlines()]
    assert [line.removeprefix("DIR").strip() for line in listed] == [f"{there}/d/", f"{there}/b c"]
    assert str(2 * LARGE_OBJECT_BYTES) in s3cmd("du", there)
    s3cmd("get", f"{there}/b c", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == large
    s3cmd("del", "--recursive", "--force", there)
    assert objects(s3, bucket) == {}
    s3cmd("rb", there)
    assert bucket not in s3cmd("ls")


def test_metadata_is_kept_and_changed(
    s3cmd: Callable[..., str], s3: Any, bucket: str, tmp_path: Path
) -> None:
    path = f"s3://{bucket}/k"
    write_files(tmp_path, {"k": b"x"})
    header = "--add-header=x-amz-meta-label:cat"
    s3cmd("put", "--mime-type=text/x-test", header, tmp_path / "k", path)
    assert "x-amz-meta-label: cat" in s3cmd("info", path)
    s3cmd("modify", "--add-header=x-amz-meta-label:dog", path)
    head = s3.head_object(Bucket=bucket, Key="k")
    assert (head["Metadata"]["label"], head["ContentType"]) == ("dog", "text/x-test")


def test_an_interrupted_download_goes_on_where_it_stopped(
    s3cmd: Callable[..., str], s3: Any, bucket: str, tmp_path: Path
) -> None:
    body = content(100_000)
    s3.put_object(Bucket=bucket, Key="k", Body=body)
    part = tmp_path / "k"
    part.write_bytes(body[:60_000])
    s3cmd("get", "--continue", f"s3://{bucket}/k", part)
    assert part.read_bytes() == body
