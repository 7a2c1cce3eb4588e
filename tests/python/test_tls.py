"""Other people's clients, and ours, over HTTPS with the CA of `forebay dev --tls`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from typing import Any

import boto3
import pytest
import requests
from aistore.sdk import Client as AisClient
from botocore.config import Config
from botocore.exceptions import SSLError
from conftest import Cluster
from forebay_cluster import binary
from forebay_s3 import REGION

BODY = os.urandom(3 << 20)


@pytest.fixture(scope="module")
def tls_cluster(start_cluster: Callable[..., Cluster]) -> Cluster:
    return start_cluster(targets=2, options=["--tls"])


@pytest.fixture(scope="module")
def ca(tls_cluster: Cluster) -> str:
    return str(tls_cluster.info["ca"])


def test_dev_json_names_the_https_endpoint_and_its_ca(tls_cluster: Cluster, ca: str) -> None:
    assert tls_cluster.endpoint.startswith("https://")
    with open(ca) as file:
        assert "BEGIN CERTIFICATE" in file.read()
    assert os.stat(ca.replace("ca.pem", "ca-key.pem")).st_mode & 0o077 == 0
    for url in (tls_cluster.endpoint, *(node["url"] for node in tls_cluster.targets)):
        assert requests.get(f"{url}/healthz", verify=ca, timeout=10).status_code == 200
    with pytest.raises(requests.exceptions.SSLError):
        requests.get(f"{tls_cluster.endpoint}/healthz", timeout=10)


def test_boto3_reads_and_writes_over_https(tls_cluster: Cluster, ca: str) -> None:
    key = tls_cluster.info["s3_keys"][0]

    def client(verify: str | None) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=f"{tls_cluster.endpoint}/s3",
            aws_access_key_id=key["access"],
            aws_secret_access_key=key["secret"],
            region_name=REGION,
            verify=verify,
            config=Config(retries={"max_attempts": 1}),
        )

    s3 = client(ca)
    s3.create_bucket(Bucket="boto")
    s3.put_object(Bucket="boto", Key="o", Body=BODY)
    assert s3.get_object(Bucket="boto", Key="o")["Body"].read() == BODY
    upload = s3.create_multipart_upload(Bucket="boto", Key="parts")
    part = {"Bucket": "boto", "Key": "parts", "UploadId": upload["UploadId"]}
    tags = [
        {"PartNumber": n, "ETag": s3.upload_part(**part, PartNumber=n, Body=body)["ETag"]}
        for n, body in ((1, b"x" * (5 << 20)), (2, BODY))
    ]
    done = s3.complete_multipart_upload(**part, MultipartUpload={"Parts": tags})
    assert done["Location"].startswith("https://")
    assert [o["Key"] for o in s3.list_objects_v2(Bucket="boto")["Contents"]] == ["o", "parts"]
    with pytest.raises(SSLError):
        client(None).list_buckets()


def test_the_aistore_sdk_follows_redirects_over_https(
    tls_cluster: Cluster, ca: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # requests prefers these to the file that the SDK sets.
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    bucket = AisClient(tls_cluster.endpoint, ca_cert=ca).bucket("sdk").create()
    for n in range(8):
        bucket.object(f"o{n}").get_writer().put_content(BODY[: 1000 * n + 1])
    for n in range(8):
        assert bucket.object(f"o{n}").get_reader().read_all() == BODY[: 1000 * n + 1]
    assert len(bucket.list_all_objects()) == 8


def test_our_client_needs_the_ca(
    tls_cluster: Cluster, ca: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forebay = pytest.importorskip("forebay")
    client = forebay.Client(tls_cluster.endpoint, ca_file=ca, timeout=20)
    bucket = client.bucket("own").create()
    bucket.object("o").put(BODY)
    assert bytes(bucket.object("o").get().read_all()) == BODY
    assert [bytes(b) for b in client.get_many([(bucket, "o")])] == [BODY]
    with pytest.raises(forebay.ForebayError, match="FOREBAY_CA_FILE"):
        forebay.Client(tls_cluster.endpoint, timeout=20).bucket("own").object("o").get().read_all()
    monkeypatch.setenv("FOREBAY_CA_FILE", ca)
    read = forebay.Client(tls_cluster.endpoint).bucket("own").object("o").get().read_all()
    assert bytes(read) == BODY


def test_the_command_line_shows_every_certificate(tls_cluster: Cluster, ca: str) -> None:
    show = [str(binary()), "tls", "show", "--endpoint", tls_cluster.endpoint]
    trusted = subprocess.run(
        show, env={**os.environ, "FOREBAY_CA_FILE": ca}, capture_output=True, text=True, check=True
    )
    assert trusted.stdout.count("TLSv1.3") == 3, trusted.stdout
    other = {name: value for name, value in os.environ.items() if name != "FOREBAY_CA_FILE"}
    refused = subprocess.run(show, env=other, capture_output=True, text=True)
    assert refused.returncode == 1
    assert refused.stdout.count("is not trusted") == 3, refused.stdout
