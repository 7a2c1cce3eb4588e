"""What Google keeps with an object comes with it, cold and cached; bytes come as they are stored."""

from __future__ import annotations

import gzip
import json
import urllib.request
import uuid
from collections.abc import Callable
from typing import Any

import forebay
from conftest import Cluster, FakeGcs
from forebay_s3 import client

HEADERS = {
    "CacheControl": "public, max-age=60",
    "ContentDisposition": 'attachment; filename="x"',
    "ContentLanguage": "pl",
}


def put(gcs: FakeGcs, bucket: str, name: str, content: bytes, **described: str) -> None:
    """Puts an object with its description past any cluster."""
    edge = "edge-of-a-part"
    about = json.dumps({"name": name, **described})
    parts = [
        f"--{edge}\r\nContent-Type: application/json\r\n\r\n{about}",
        f"\r\n--{edge}\r\nContent-Type: {described.get('contentType', 'text/plain')}\r\n\r\n",
    ]
    body = "".join(parts).encode() + content + f"\r\n--{edge}--\r\n".encode()
    url = f"{gcs.endpoint}/upload/storage/v1/b/{bucket}/o?uploadType=multipart"
    kind = {"content-type": f"multipart/related; boundary={edge}"}
    with urllib.request.urlopen(urllib.request.Request(url, body, kind), timeout=20):
        pass


def headers_of(answer: dict[str, Any]) -> dict[str, str | None]:
    return {name: answer.get(name) for name in (*HEADERS, "ContentEncoding")}


def test_headers_of_an_object_at_google_are_the_same_cold_and_cached(
    start_cluster: Callable[..., Cluster], fake_gcs: FakeGcs
) -> None:
    name = f"t-{uuid.uuid4().hex[:12]}"
    fake_gcs.create_bucket(name)
    described = {name[0].lower() + name[1:]: value for name, value in HEADERS.items()}
    packed = gzip.compress(b"content " * 100, mtime=0)
    put(fake_gcs, name, "plain", b"content", **described)
    put(fake_gcs, name, "packed", packed, contentEncoding="gzip", **described)
    put(fake_gcs, name, "bare", b"content")
    running = start_cluster(targets=1, env=fake_gcs.env)
    bucket = forebay.Client(running.endpoint, timeout=20).bucket(name, "gs")
    assert [entry.name for entry in bucket.list_objects()] == ["bare", "packed", "plain"]
    s3 = client(f"{running.endpoint}/s3")
    for key, content, encoding in (("plain", b"content", None), ("packed", packed, "gzip")):
        expected = {**HEADERS, "ContentEncoding": encoding}
        for _ in ("cold", "cached"):
            got = s3.get_object(Bucket=name, Key=key)
            assert (headers_of(got), got["Body"].read()) == (expected, content)
            assert headers_of(s3.head_object(Bucket=name, Key=key)) == expected
    assert fake_gcs.reads(name) == 2
    bare = s3.get_object(Bucket=name, Key="bare")
    assert headers_of(bare) == dict.fromkeys((*HEADERS, "ContentEncoding"))
