"""The S3 front as the AWS command line uses it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from forebay_s3 import (
    LARGE_OBJECT_BYTES,
    ODD_NAMES,
    content,
    environment,
    objects,
    program,
    read_files,
    run,
    write_files,
)


@pytest.fixture
def aws(s3_url: str) -> Callable[..., str]:
    """`aws("s3", "ls", …)` -> what the command says."""
    command = program("awscli", "aws")
    return lambda *words: run([command, *words], environment(s3_url))


def test_sync_goes_both_ways_and_leaves_nothing_to_do(
    aws: Callable[..., str], s3: Any, bucket: str, tmp_path: Path
) -> None:
    up, down = tmp_path / "up", tmp_path / "down"
    files = {name: name.encode() for name in ODD_NAMES}
    files |= {"d/large": content(LARGE_OBJECT_BYTES), "d/empty": b""}
    write_files(up, files)
    there = f"s3://{bucket}/set"
    assert aws("s3", "sync", up, there).count("upload: ") == len(files)
    assert objects(s3, bucket) == {f"set/{name}": body for name, body in files.items()}
    assert s3.head_object(Bucket=bucket, Key="set/d/large")["ETag"].endswith('-3"')
    assert aws("s3", "sync", up, there) == ""
    aws("s3", "sync", there, down)
    assert read_files(down) == files
    assert aws("s3", "sync", there, down) == ""
    (up / "d/empty").write_bytes(b"no more")
    (up / ODD_NAMES[0]).unlink()
    changed = aws("s3", "sync", up, there, "--delete")
    assert (changed.count("upload: "), changed.count("delete: ")) == (1, 1)
    assert objects(s3, bucket) == {f"set/{n}": body for n, body in read_files(up).items()}


def test_an_empty_file_is_the_last_of_its_connection(s3: Any, bucket: str) -> None:
    """The command expects a `100 Continue` even where nothing is to come. When it gets the final
    status instead, it takes that for the status of the next answer on the connection, too."""
    url = urlsplit(s3.generate_presigned_url("put_object", {"Bucket": bucket, "Key": "k"}))
    for headers, after in [({}, None), ({"Expect": "100-continue"}, "close")]:
        connection = http.client.HTTPConnection(url.netloc, timeout=10)
        connection.request("PUT", f"{url.path}?{url.query}", b"", headers)
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("connection")) == (200, after)


def test_files_are_copied_moved_listed_and_removed(
    aws: Callable[..., str], s3: Any, bucket: str, tmp_path: Path
) -> None:
    large, there = content(LARGE_OBJECT_BYTES), f"s3://{bucket}"
    write_files(tmp_path, {"large": large})
    aws("s3", "cp", tmp_path / "large", f"{there}/a", "--metadata", "label=cat")
    assert s3.head_object(Bucket=bucket, Key="a")["Metadata"] == {"label": "cat"}
    aws("s3", "cp", f"{there}/a", f"{there}/d/b c")
    aws("s3", "mv", f"{there}/a", f"{there}/ü")
    assert objects(s3, bucket) == {"d/b c": large, "ü": large}
    listed = [line.split(maxsplit=3) for line in aws("s3", "ls", there).splitlines()]
    assert [words[-1] for words in listed] == ["d/", "ü"]
    assert str(LARGE_OBJECT_BYTES) in aws("s3", "ls", there, "--recursive", "--summarize")
    aws("s3", "rm", there, "--recursive")
    assert aws("s3", "ls", there) == ""
    aws("s3", "rb", there)
    assert bucket not in aws("s3", "ls")


def test_objects_are_put_read_in_ranges_and_described(
    aws: Callable[..., str], bucket: str, tmp_path: Path
) -> None:
    body = content(LARGE_OBJECT_BYTES)
    write_files(tmp_path, {"body": body})
    which = ["--bucket", bucket, "--key", "a b/ü"]
    options = ["--metadata", "label=cat", "--content-type", "text/x-test"]
    sum_of = ["--checksum-algorithm", "SHA256"]
    put = aws("s3api", "put-object", *which, "--body", tmp_path / "body", *options, *sum_of)
    head = json.loads(aws("s3api", "head-object", *which, "--checksum-mode", "ENABLED"))
    assert head["Metadata"] == {"label": "cat"} and head["ContentType"] == "text/x-test"
    assert head["ContentLength"] == LARGE_OBJECT_BYTES
    assert head["ChecksumSHA256"] == json.loads(put)["ChecksumSHA256"]
    aws("s3api", "get-object", *which, "--range", "bytes=12345678-12345699", tmp_path / "some")
    assert (tmp_path / "some").read_bytes() == body[12345678:12345700]
    attributes = ["--object-attributes", "ETag", "ObjectSize"]
    found = json.loads(aws("s3api", "get-object-attributes", *which, *attributes))
    assert found["ObjectSize"] == LARGE_OBJECT_BYTES
    aws("s3api", "delete-object", *which)
    assert aws("s3api", "list-objects-v2", "--bucket", bucket, "--query", "Contents") == "null\n"


def test_a_stream_of_unknown_length_is_uploaded(
    aws: Callable[..., str], s3: Any, s3_url: str, bucket: str
) -> None:
    command = f"head -c {LARGE_OBJECT_BYTES} /dev/zero | {program('awscli', 'aws')} s3 cp - s3://{bucket}/k"
    run(["bash", "-o", "pipefail", "-c", command], environment(s3_url))
    assert objects(s3, bucket) == {"k": bytes(LARGE_OBJECT_BYTES)}
