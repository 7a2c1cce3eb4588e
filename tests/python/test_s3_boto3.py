"""The S3 front as boto3 uses it: every promise here is one that other S3 clients rely on too."""

from __future__ import annotations

import base64
import hashlib
import io
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
import requests
from botocore.exceptions import ClientError
from conftest import Cluster
from forebay_s3 import client

PART = 5 << 20


def code(call: Callable[[], Any]) -> str:
    """The error code that a call fails with."""
    with pytest.raises(ClientError) as caught:
        call()
    return str(caught.value.response["Error"]["Code"])


def test_an_object_keeps_its_headers_and_metadata(s3: Any, bucket: str) -> None:
    put = s3.put_object(
        Bucket=bucket,
        Key="a b/ü+x",
        Body=b"hello",
        ContentType="text/x-test",
        CacheControl="max-age=1",
        Metadata={"label": "cat"},
    )
    assert put["ETag"] == f'"{hashlib.md5(b"hello").hexdigest()}"'
    got = s3.get_object(Bucket=bucket, Key="a b/ü+x")
    assert got["Body"].read() == b"hello"
    assert (got["ContentType"], got["CacheControl"]) == ("text/x-test", "max-age=1")
    assert (got["Metadata"], got["ETag"]) == ({"label": "cat"}, put["ETag"])
    head = s3.head_object(Bucket=bucket, Key="a b/ü+x")
    assert (head["ContentLength"], head["Metadata"]) == (5, {"label": "cat"})


def test_keys_are_opaque(s3: Any, bucket: str) -> None:
    keys = ["ds", "ds/part-1", "a//b", "./x", "x/../y", "dir/", "/lead", "k" * 1024, "ünï"]
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    listed = [o["Key"] for o in s3.list_objects_v2(Bucket=bucket)["Contents"]]
    assert listed == sorted(keys, key=str.encode)
    for key in keys:
        assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == key.encode()


def test_listings_fold_and_go_on(s3: Any, bucket: str) -> None:
    for key in ["a/1", "a/2", "b", "c/1", "d"]:
        s3.put_object(Bucket=bucket, Key=key, Body=b"")
    page = s3.list_objects_v2(Bucket=bucket, Delimiter="/", MaxKeys=2)
    assert [p["Prefix"] for p in page["CommonPrefixes"]] == ["a/"]
    assert [o["Key"] for o in page["Contents"]] == ["b"]
    assert page["IsTruncated"]
    token = page["NextContinuationToken"]
    page = s3.list_objects_v2(Bucket=bucket, Delimiter="/", ContinuationToken=token)
    assert [p["Prefix"] for p in page["CommonPrefixes"]] == ["c/"]
    assert [o["Key"] for o in page["Contents"]] == ["d"]
    assert not page["IsTruncated"]


def test_ranges_and_conditions(s3: Any, bucket: str) -> None:
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"0123456789")["ETag"]

    def get(**how: Any) -> Any:
        return s3.get_object(Bucket=bucket, Key="k", **how)

    assert get(Range="bytes=2-4")["Body"].read() == b"234"
    assert get(Range="bytes=-3")["ContentRange"] == "bytes 7-9/10"
    assert code(lambda: get(Range="bytes=10-")) == "InvalidRange"
    assert get(IfMatch=etag)["ContentLength"] == 10
    assert code(lambda: get(IfNoneMatch=etag)) == "304"
    assert code(lambda: get(IfMatch='"other"')) == "PreconditionFailed"

    def put(**how: Any) -> Any:
        return s3.put_object(Bucket=bucket, Key="k", Body=b"new", **how)

    assert code(lambda: put(IfNoneMatch="*")) == "PreconditionFailed"
    assert code(lambda: put(IfMatch='"other"')) == "PreconditionFailed"
    put(IfMatch=etag)
    assert get()["Body"].read() == b"new"


def test_an_upload_in_parts_becomes_one_object(s3: Any, bucket: str) -> None:
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k", ContentType="text/x-test")
    which = {"Bucket": bucket, "Key": "k", "UploadId": upload["UploadId"]}
    bodies = [b"a" * PART, b"b" * 7]
    parts = []
    for number, body in enumerate(bodies, 1):
        etag = s3.upload_part(**which, PartNumber=number, Body=body)["ETag"]
        parts.append({"PartNumber": number, "ETag": etag})
    assert [p["Size"] for p in s3.list_parts(**which)["Parts"]] == [PART, 7]
    uploads = s3.list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert [u["UploadId"] for u in uploads] == [upload["UploadId"]]
    done = s3.complete_multipart_upload(**which, MultipartUpload={"Parts": parts})
    md5s = b"".join(hashlib.md5(body).digest() for body in bodies)
    assert done["ETag"] == f'"{hashlib.md5(md5s).hexdigest()}-2"'
    again = s3.complete_multipart_upload(**which, MultipartUpload={"Parts": parts})
    assert again["ETag"] == done["ETag"]
    got = s3.get_object(Bucket=bucket, Key="k")
    assert got["ContentType"] == "text/x-test"
    assert got["Body"].read() == b"".join(bodies)
    second = s3.get_object(Bucket=bucket, Key="k", PartNumber=2)
    assert (second["Body"].read(), second["PartsCount"]) == (b"b" * 7, 2)


def test_an_aborted_upload_leaves_nothing(s3: Any, bucket: str) -> None:
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
    which = {"Bucket": bucket, "Key": "k", "UploadId": upload}
    s3.upload_part(**which, PartNumber=1, Body=b"a")
    s3.abort_multipart_upload(**which)
    assert code(lambda: s3.upload_part(**which, PartNumber=1, Body=b"a")) == "NoSuchUpload"
    assert code(lambda: s3.get_object(Bucket=bucket, Key="k")) == "NoSuchKey"


def test_copies_go_between_targets_with_their_metadata(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="from", Body=b"bytes", Metadata={"m": "1"})
    for n in range(8):
        s3.copy_object(Bucket=bucket, Key=f"to-{n}", CopySource=f"{bucket}/from")
        got = s3.get_object(Bucket=bucket, Key=f"to-{n}")
        assert (got["Body"].read(), got["Metadata"]) == (b"bytes", {"m": "1"})
    itself = {"Bucket": bucket, "Key": "from", "CopySource": f"{bucket}/from"}
    assert code(lambda: s3.copy_object(**itself)) == "InvalidRequest"
    s3.copy_object(**itself, MetadataDirective="REPLACE", Metadata={"m": "2"})
    assert s3.head_object(Bucket=bucket, Key="from")["Metadata"] == {"m": "2"}


def test_many_objects_go_at_once(s3: Any, bucket: str) -> None:
    for n in range(20):
        s3.put_object(Bucket=bucket, Key=f"k{n}", Body=b"")
    assert code(lambda: s3.delete_bucket(Bucket=bucket)) == "BucketNotEmpty"
    keys = [{"Key": f"k{n}"} for n in range(20)] + [{"Key": "never-there"}]
    done = s3.delete_objects(Bucket=bucket, Delete={"Objects": keys})
    assert (len(done["Deleted"]), done.get("Errors")) == (21, None)
    s3.delete_bucket(Bucket=bucket)
    assert code(lambda: s3.list_objects_v2(Bucket=bucket)) == "NoSuchBucket"


@pytest.mark.parametrize("algorithm", ["CRC32", "SHA1", "SHA256"])
def test_checksums_are_kept_and_compared(s3: Any, bucket: str, algorithm: str) -> None:
    put = s3.put_object(Bucket=bucket, Key="k", Body=b"x", ChecksumAlgorithm=algorithm)
    head = s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert head[f"Checksum{algorithm}"] == put[f"Checksum{algorithm}"]
    size = {"CRC32": 4, "SHA1": 20, "SHA256": 32}[algorithm]
    wrong = {f"Checksum{algorithm}": base64.b64encode(bytes(size)).decode()}
    refused = code(lambda: s3.put_object(Bucket=bucket, Key="new", Body=b"x", **wrong))
    assert refused == "BadDigest"
    assert code(lambda: s3.get_object(Bucket=bucket, Key="new")) == "NoSuchKey"


def test_a_wrong_md5_stores_nothing(s3: Any, bucket: str) -> None:
    def put(md5: str) -> Any:
        return s3.put_object(Bucket=bucket, Key="k", Body=b"x", ContentMD5=md5)

    assert code(lambda: put(base64.b64encode(bytes(16)).decode())) == "BadDigest"
    assert code(lambda: put("YWJj")) == "InvalidDigest"
    assert code(lambda: s3.get_object(Bucket=bucket, Key="k")) == "NoSuchKey"


def test_only_holders_of_a_key_come_in(s3_url: str, s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    forged = client(s3_url, secret="guess")
    for call in [
        lambda: forged.get_object(Bucket=bucket, Key="k"),
        lambda: forged.put_object(Bucket=bucket, Key="k", Body=b"y"),
        lambda: forged.list_objects_v2(Bucket=bucket),
    ]:
        assert code(call) == "SignatureDoesNotMatch"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{s3_url}/{bucket}/k")
    assert refused.value.code == 403
    for version in ["s3v4", "s3"]:
        signer = client(s3_url, signature_version=version)
        signed = signer.generate_presigned_url("get_object", {"Bucket": bucket, "Key": "k"})
        assert urllib.request.urlopen(signed).read() == b"x"


def test_every_node_serves_every_object(s3_cluster: Cluster, s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x" * 100_000)
    for node in s3_cluster.targets:
        there = client(f"{node['url']}/s3")
        assert there.get_object(Bucket=bucket, Key="k")["ContentLength"] == 100_000
        there.put_object(Bucket=bucket, Key="k2", Body=b"y")
        assert there.list_objects_v2(Bucket=bucket)["KeyCount"] == 2


def test_v1_and_s3_see_the_same_object(s3_cluster: Cluster, s3: Any, bucket: str) -> None:
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"x", Metadata={"label": "cat"})["ETag"]
    url = f"{s3_cluster.endpoint}/v1/objects/{bucket}/k?provider=ais&props=etag,custom"
    head = requests.head(url, allow_redirects=True, timeout=10)
    assert head.headers["etag"] == etag
    assert head.headers["ais-custom-md"] == "label=cat"


def test_files_of_any_size_go_up_and_come_down(s3: Any, bucket: str) -> None:
    for size in [0, 1, 9 << 20]:
        body = bytes(i * 31 % 251 for i in range(1000)) * (size // 1000 + 1)
        body = body[:size]
        s3.upload_fileobj(io.BytesIO(body), bucket, "file")
        down = io.BytesIO()
        s3.download_fileobj(bucket, "file", down)
        assert down.getvalue() == body
