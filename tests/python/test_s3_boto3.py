"""The S3 front as boto3 uses it: every promise here is one that other S3 clients rely on too."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any
from xml.etree import ElementTree

import boto3
import pytest
import requests
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError
from conftest import Cluster, Minio
from forebay_s3 import ACCESS, REGION, SECRET, client

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


def test_listings_fold_and_continue(s3: Any, bucket: str) -> None:
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


def test_many_objects_are_deleted_by_one_request(s3: Any, bucket: str) -> None:
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


def test_only_holders_of_a_key_have_access(s3_url: str, s3: Any, bucket: str) -> None:
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


def raw(url: str, **headers: str) -> tuple[int, bytes, Mapping[str, str]]:
    """Status, body and headers of a GET of a presigned URL, with headers that nobody signed."""
    answer = requests.get(url, headers=headers, timeout=20)
    return answer.status_code, answer.content, answer.headers


def test_a_range_is_of_the_version_that_if_range_names(
    s3_cluster: Cluster, s3: Any, bucket: str
) -> None:
    old = s3.put_object(Bucket=bucket, Key="k", Body=b"UVWXYZ")["ETag"]
    new = s3.put_object(Bucket=bucket, Key="k", Body=b"abcdefgh")["ETag"]
    date = s3.get_object(Bucket=bucket, Key="k")["ResponseMetadata"]["HTTPHeaders"]["last-modified"]
    by_s3 = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "k"})
    by_v1 = f"{s3_cluster.endpoint}/v1/objects/{bucket}/k"
    epoch = "Thu, 01 Jan 1970 00:00:00 GMT"
    for url in (by_s3, by_v1):
        for validator, wanted in [
            (new, (206, b"defgh")),
            (date, (206, b"defgh")),
            (old, (200, b"abcdefgh")),
            (epoch, (200, b"abcdefgh")),
            (f"W/{new}", (200, b"abcdefgh")),
        ]:
            got = raw(url, **{"Range": "bytes=3-", "If-Range": validator})
            assert got[:2] == wanted, (url, validator)
        # Behind the end of what is there now.
        headers = {"Range": "bytes=100-", "If-Range": old}
        assert raw(url, **headers)[:2] == (200, b"abcdefgh"), url
        status, _, answer = raw(url, Range="bytes=100-")
        assert (status, answer["Content-Range"]) == (416, "bytes */8"), url


def test_a_part_of_what_was_put_whole_is_all_of_it(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"body")
    got = s3.get_object(Bucket=bucket, Key="k", PartNumber=1)
    assert (got["ResponseMetadata"]["HTTPStatusCode"], got["ContentRange"]) == (206, "bytes 0-3/4")
    assert got["Body"].read() == b"body"
    assert code(lambda: s3.get_object(Bucket=bucket, Key="k", PartNumber=2)) == "InvalidPart"
    s3.put_object(Bucket=bucket, Key="empty", Body=b"")
    assert s3.get_object(Bucket=bucket, Key="empty", PartNumber=1)["ContentLength"] == 0


def test_a_part_that_an_object_does_not_have_is_an_error(s3: Any, bucket: str) -> None:
    """The code is that of Ceph, which its s3-tests want; AWS says 416 InvalidPartNumber."""
    s3.put_object(Bucket=bucket, Key="whole", Body=b"body")
    created = s3.create_multipart_upload(Bucket=bucket, Key="parts")
    upload = {"Bucket": bucket, "Key": "parts", "UploadId": created["UploadId"]}
    sizes = {2: PART, 7: 9}
    named = [
        {"PartNumber": n, "ETag": s3.upload_part(Body=b"x" * size, PartNumber=n, **upload)["ETag"]}
        for n, size in sizes.items()
    ]
    s3.complete_multipart_upload(MultipartUpload={"Parts": named}, **upload)
    # Parts count from 1, whatever their numbers were.
    for n, size in enumerate(sizes.values(), 1):
        for read in (s3.get_object, s3.head_object):
            got = read(Bucket=bucket, Key="parts", PartNumber=n)
            assert (got["ContentLength"], got["PartsCount"]) == (size, 2), n
    for key, first in [("parts", 3), ("parts", 7), ("whole", 2), ("empty", 2)]:
        s3.put_object(Bucket=bucket, Key="empty", Body=b"")
        for n in (first, 10_000):
            of = {"Bucket": bucket, "Key": key, "PartNumber": n}
            with pytest.raises(ClientError) as caught:
                s3.get_object(**of)
            answer = caught.value.response
            assert answer["ResponseMetadata"]["HTTPStatusCode"] == 400, of
            assert answer["Error"]["Code"] == "InvalidPart", of
            assert code(lambda of=of: s3.head_object(**of)) == "400", of
    for n in (0, 10_001):
        of = {"Bucket": bucket, "Key": "parts", "PartNumber": n}
        assert code(lambda of=of: s3.get_object(**of)) == "InvalidArgument", n
    both = {"Bucket": bucket, "Key": "parts", "PartNumber": 1, "Range": "bytes=0-1"}
    assert code(lambda: s3.get_object(**both)) == "InvalidRequest"


def test_a_bucket_made_twice_is_there_once_as_in_its_region(s3: Any, bucket: str) -> None:
    s3.create_bucket(Bucket=bucket)
    region = {"LocationConstraint": "eu-central-1"}
    again = code(lambda: s3.create_bucket(Bucket=bucket, CreateBucketConfiguration=region))
    assert again == "BucketAlreadyOwnedByYou"


def test_a_form_is_answered_with_the_checksum_of_its_file(s3: Any, bucket: str) -> None:
    sums = {"x-amz-checksum-crc32c": "yZRlqg=="}
    form = s3.generate_presigned_post(bucket, "k", Fields=sums, Conditions=[sums])
    files = {"file": b"hello world"}
    posted = requests.post(form["url"], data=form["fields"], files=files, timeout=20)
    assert (posted.status_code, posted.headers["x-amz-checksum-crc32c"]) == (204, "yZRlqg==")
    other = {**form["fields"], "x-amz-checksum-crc32c": "AAAAAA=="}
    denied = requests.post(form["url"], data=other, files=files, timeout=20)
    wanted = '["eq", "$x-amz-checksum-crc32c", "yZRlqg=="]'
    message = ElementTree.fromstring(denied.content).findtext("Message") or ""
    assert denied.status_code == 403 and wanted in message, denied.text
    files = {"file": b"hello world!"}
    wrong = requests.post(form["url"], data=form["fields"], files=files, timeout=20)
    assert ElementTree.fromstring(wrong.content).findtext("Code") == "BadDigest"


def test_metadata_may_be_in_many_headers(s3: Any, bucket: str) -> None:
    # Python reads at most 100 headers of an answer; servers may send more.
    metadata = {f"name-{n:02}": "v" * 12 for n in range(80)}
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", Metadata=metadata)
    assert s3.head_object(Bucket=bucket, Key="k")["Metadata"] == metadata
    many = {f"m{n:03}": "v" for n in range(150)}
    url = s3.generate_presigned_url(
        "put_object", Params={"Bucket": bucket, "Key": "many", "Metadata": many}
    )
    headers = {f"x-amz-meta-{name}": value for name, value in many.items()}
    assert requests.put(url, data=b"y", headers=headers, timeout=20).status_code == 200
    listed = s3.list_objects_v2(Bucket=bucket, Prefix="many")["Contents"]
    assert listed[0]["Size"] == 1


def test_a_completion_is_what_the_client_says_or_it_fails(s3: Any, bucket: str) -> None:
    def begin(key: str) -> tuple[str, list[dict[str, Any]], str]:
        upload = s3.create_multipart_upload(Bucket=bucket, Key=key, ChecksumAlgorithm="SHA256")
        part = {"Bucket": bucket, "Key": key, "UploadId": upload["UploadId"], "PartNumber": 1}
        sent = s3.upload_part(Body=b"all", ChecksumAlgorithm="SHA256", **part)
        named = {"PartNumber": 1, "ETag": sent["ETag"], "ChecksumSHA256": sent["ChecksumSHA256"]}
        inner = hashlib.sha256(base64.b64decode(sent["ChecksumSHA256"])).digest()
        return upload["UploadId"], [named], base64.b64encode(inner).decode()

    def complete(key: str, upload: str, parts: list[dict[str, Any]], **more: Any) -> Any:
        named = {"Parts": parts}
        return s3.complete_multipart_upload(
            Bucket=bucket, Key=key, UploadId=upload, MultipartUpload=named, **more
        )

    upload, parts, whole = begin("a b/k")
    assert code(lambda: complete("a b/k", upload, parts * 2)) == "InvalidPartOrder"
    assert code(lambda: complete("a b/k", upload, parts, MpuObjectSize=4)) == "InvalidRequest"
    wrong = base64.b64encode(bytes(32)).decode()
    assert code(lambda: complete("a b/k", upload, parts, ChecksumSHA256=wrong)) == "BadDigest"
    # As clients say it that upload streams of unknown length.
    done = complete("a b/k", upload, parts, ChecksumSHA256=whole, MpuObjectSize=3)
    assert done["ChecksumSHA256"] == f"{whole}-1"
    # The URL of the object, under the prefix and the host that the client uses.
    url = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "a b/k"})
    assert url.startswith(done["Location"])
    assert raw(url)[:2] == (200, b"all")


def test_tags_and_lists_of_older_versions_are_written(s3: Any, bucket: str) -> None:
    enabled = {"Status": "Enabled"}
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration=enabled)
    for key in ["a", "b", "c", "d"]:
        older = s3.put_object(Bucket=bucket, Key=key, Body=b"1")["VersionId"]
        newer = s3.put_object(Bucket=bucket, Key=key, Body=b"2")["VersionId"]
        which = {"Bucket": bucket, "Key": key, "VersionId": older}
        tags = [{"Key": "k", "Value": key}]
        s3.put_object_tagging(Tagging={"TagSet": tags}, **which)
        assert s3.get_object_tagging(**which)["TagSet"] == tags
        s3.put_object_acl(ACL="public-read", **which)
        assert len(s3.get_object_acl(**which)["Grants"]) == 2
        now = {"Bucket": bucket, "Key": key, "VersionId": newer}
        assert s3.get_object_tagging(**now)["TagSet"] == []
        s3.delete_object_tagging(**which)
        assert s3.get_object_tagging(**which)["TagSet"] == []


def test_object_lock_is_refused(s3: Any) -> None:
    create = {"Bucket": "locked-by-nobody", "ObjectLockEnabledForBucket": True}
    assert code(lambda: s3.create_bucket(**create)) == "NotImplemented"
    assert code(lambda: s3.head_bucket(Bucket="locked-by-nobody")) == "404"


def test_a_read_only_bucket_refuses_changes_over_every_protocol(
    s3_cluster: Cluster, s3: Any, bucket: str
) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"kept")
    created = s3.create_multipart_upload(Bucket=bucket, Key="p")["UploadId"]
    part = {"Bucket": bucket, "Key": "p", "UploadId": created, "PartNumber": 1}
    sent = s3.upload_part(Body=b"x", **part)
    v1 = f"{s3_cluster.endpoint}/v1"

    def set_access(mask: str) -> requests.Response:
        action = {"action": "set-bprops", "value": {"access": mask}}
        return requests.patch(f"{v1}/buckets/{bucket}", json=action, timeout=20)

    assert set_access("0").status_code == 501
    assert set_access("771").status_code == 200
    parts = {"Parts": [{"PartNumber": 1, "ETag": sent["ETag"]}]}
    for change in [
        lambda: s3.put_object(Bucket=bucket, Key="k", Body=b"new"),
        lambda: s3.put_object(Bucket=bucket, Key="new", Body=b"new"),
        lambda: s3.copy_object(Bucket=bucket, Key="new", CopySource=f"{bucket}/k"),
        lambda: s3.delete_object(Bucket=bucket, Key="k"),
        lambda: s3.put_object_tagging(Bucket=bucket, Key="k", Tagging={"TagSet": []}),
        lambda: s3.create_multipart_upload(Bucket=bucket, Key="q"),
        lambda: s3.complete_multipart_upload(
            Bucket=bucket, Key="p", UploadId=created, MultipartUpload=parts
        ),
        lambda: s3.delete_bucket(Bucket=bucket),
    ]:
        assert code(change) == "AccessDenied"
    gone = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "k"}]})
    assert [error["Code"] for error in gone["Errors"]] == ["AccessDenied"]
    objects, append = f"{v1}/objects/{bucket}", "append_type=append&append_handle="
    for method, url, body in [
        ("PUT", f"{objects}/k", b"new"),
        ("PUT", f"{objects}/large", b"new" * 100_000),
        ("PUT", f"{objects}/k?{append}", b"new"),
        ("DELETE", f"{objects}/k", None),
    ]:
        answer = requests.request(method, url, data=body, timeout=20)
        assert answer.status_code == 403, (method, url, answer.text)
    destroy = {"action": "destroy-bck"}
    answer = requests.delete(f"{v1}/buckets/{bucket}", json=destroy, timeout=20)
    assert answer.status_code == 403, answer.text
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"kept"
    assert [o["Key"] for o in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["k"]
    assert set_access("18446744073709551615").status_code == 200
    s3.delete_object(Bucket=bucket, Key="k")


def test_content_headers_go_to_a_cloud_and_come_back(
    minio: Minio, start_cluster: Callable[..., Cluster]
) -> None:
    cloud = boto3.client(
        "s3",
        endpoint_url=minio.endpoint,
        aws_access_key_id=minio.env["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=minio.env["AWS_SECRET_ACCESS_KEY"],
        region_name=minio.env["AWS_REGION"],
    )
    cloud.create_bucket(Bucket="encoded")
    cluster = start_cluster(gateways=1, targets=1, env=minio.env)
    ours = client(f"{cluster.endpoint}/s3")
    requests.head(f"{cluster.endpoint}/v1/buckets/encoded?provider=aws", timeout=20)
    headers = {
        "ContentEncoding": "gzip",
        "CacheControl": "max-age=60",
        "ContentDisposition": 'attachment; filename="a.txt"',
        "ContentLanguage": "de",
        "ContentType": "text/plain",
    }
    packed = gzip.compress(b"text")
    cloud.put_object(Bucket="encoded", Key="from", Body=packed, **headers)
    ours.put_object(Bucket="encoded", Key="to", Body=packed, **headers)
    pick = {"Bucket": "encoded", "Key": "to"}
    assert {name: cloud.head_object(**pick)[name] for name in headers} == headers
    for key in ["from", "to"]:
        which = {"Bucket": "encoded", "Key": key}
        for read in [ours.head_object, ours.get_object, ours.get_object, ours.head_object]:
            got = read(**which)
            assert {name: got[name] for name in headers} == headers, (key, read)
        action = {"action": "evict-listrange", "value": {"objnames": [key]}}
        url = f"{cluster.endpoint}/v1/buckets/encoded?provider=aws"
        assert requests.delete(url, json=action, timeout=20).ok
        got = ours.get_object(**which)
        assert {name: got[name] for name in headers} == headers, key


def parsed(response: requests.Response) -> ElementTree.Element:
    """The XML of an answer, as a parser without leniency reads it."""
    assert response.headers["content-type"] == "application/xml"
    return ElementTree.fromstring(response.content)


def test_no_answer_about_keys_that_xml_cannot_hold_breaks_a_parser(s3: Any, bucket: str) -> None:
    """A key may have control characters and U+FFFF; XML 1.0 may not, not even as references."""
    key = "a\x01b\x1f\x7f\uffff"
    encoded = urllib.parse.quote(key, safe="")
    namespace = "{http://s3.amazonaws.com/doc/2006-03-01/}"

    def send(method: str, path: str, query: str, body: str = "") -> requests.Response:
        url = f"{s3.meta.endpoint_url}/{bucket}{path}?{query}"
        request = AWSRequest(method, url, data=body.encode())
        request.headers["x-amz-content-sha256"] = hashlib.sha256(body.encode()).hexdigest()
        S3SigV4Auth(Credentials(ACCESS, SECRET), "s3", REGION).add_auth(request)
        return requests.request(
            method, url, data=body.encode(), headers=dict(request.headers), timeout=20
        )

    def text_of(response: requests.Response, name: str) -> str | None:
        assert response.status_code == 200, response.text
        return parsed(response).findtext(f".//{namespace}{name}")

    def refused(response: requests.Response) -> None:
        assert response.status_code == 400, response.text
        error = parsed(response)
        assert error.findtext("ArgumentName") == "encoding-type"
        assert "encoding-type=url" in (error.findtext("Message") or "")

    # An upload in parts: its own key is encoded, or left out.
    object_path = f"/{encoded}"
    created = send("POST", object_path, "encoding-type=url&uploads=")
    assert text_of(created, "Key") == encoded
    created = send("POST", object_path, "uploads=")
    assert text_of(created, "Key") is None
    upload = text_of(created, "UploadId")
    part = send("PUT", object_path, f"partNumber=1&uploadId={upload}", "part")
    for query, path in [("uploads=", ""), (f"uploadId={upload}", object_path)]:
        both = "&".join(sorted([query, "encoding-type=url"]))
        assert text_of(send("GET", path, both), "Key") == encoded
        refused(send("GET", path, query))
    named = f"<Part><PartNumber>1</PartNumber><ETag>{part.headers['etag']}</ETag></Part>"
    whole = f"<CompleteMultipartUpload>{named}</CompleteMultipartUpload>"
    done = send("POST", object_path, f"uploadId={upload}", whole)
    assert text_of(done, "Key") is None
    done = send("POST", object_path, f"encoding-type=url&uploadId={upload}", whole)
    assert text_of(done, "Key") == encoded

    # Listings.
    for query in ["", "list-type=2", "versions=", f"list-type=2&prefix={encoded}"]:
        both = "&".join(sorted(filter(None, [query, "encoding-type=url"])))
        assert text_of(send("GET", "", both), "Key") == encoded, query
        refused(send("GET", "", query))
    for kind in ["list_objects", "list_objects_v2"]:
        listed = getattr(s3, kind)(Bucket=bucket, Prefix="a\x01")["Contents"]
        assert [row["Key"] for row in listed] == [key], kind
    assert s3.list_object_versions(Bucket=bucket)["Versions"][0]["Key"] == key

    # Errors that name the key.
    missing = send("GET", f"{object_path}%02", "")
    assert (missing.status_code, parsed(missing).findtext("Code")) == (404, "NoSuchKey")
    assert parsed(missing).findtext("Key") is None

    # Deletions: refused before anything is deleted, encoded, or silent.
    row = "".join(f"&#{ord(c)};" if c < " " else c for c in key)

    def delete(quiet: str) -> str:
        return f"<Delete><Quiet>{quiet}</Quiet><Object><Key>{row}</Key></Object></Delete>"

    refused(send("POST", "", "delete=", delete("false")))
    assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == b"part"
    gone = send("POST", "", "delete=&encoding-type=url", delete("false"))
    assert text_of(gone, "Key") == encoded
    s3.put_object(Bucket=bucket, Key=key, Body=b"again")
    assert "Errors" not in s3.delete_objects(
        Bucket=bucket, Delete={"Objects": [{"Key": key}], "Quiet": True}
    )
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_uploads_of_one_key_are_listed_in_the_order_in_which_they_began(
    s3: Any, bucket: str
) -> None:
    created = [s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"] for _ in range(8)]
    assert [u["UploadId"] for u in s3.list_multipart_uploads(Bucket=bucket)["Uploads"]] == created
    behind = {"KeyMarker": "k", "UploadIdMarker": created[2]}
    listed = s3.list_multipart_uploads(Bucket=bucket, **behind)["Uploads"]
    assert [u["UploadId"] for u in listed] == created[3:]
    # A key alone is behind all uploads of it, as AWS has it.
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket, KeyMarker="k")
