"""Datasets over buckets of a cloud: rights, and one state of the data."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import forebay
import pytest
from conftest import Cluster, Minio
from forebay_torch import IterableDataset, MapDataset, prefetch_order
from forebay_torch.datapipes import IterableWrapper


def s3_client(minio: Minio, service: str = "s3") -> Any:
    """A client that goes past the cluster."""
    return boto3.client(
        service,
        endpoint_url=minio.endpoint,
        aws_access_key_id=minio.env["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=minio.env["AWS_SECRET_ACCESS_KEY"],
        region_name=minio.env["AWS_REGION"],
    )


def reader_of(minio: Minio, bucket: str) -> dict[str, str]:
    """The keys of somebody who may list and read this bucket and do nothing else."""
    sts = s3_client(minio, "sts")
    may_read = {
        "Effect": "Allow",
        "Action": ["s3:GetObject", "s3:ListBucket"],
        "Resource": [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"],
    }
    role = sts.assume_role(
        RoleArn="arn:aws:iam::000000000000:role/reader",
        RoleSessionName="reader",
        Policy=json.dumps({"Version": "2012-10-17", "Statement": [may_read]}),
    )["Credentials"]
    return {
        "AWS_ACCESS_KEY_ID": role["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": role["SecretAccessKey"],
        "AWS_SESSION_TOKEN": role["SessionToken"],
    }


@pytest.fixture
def cloud(minio: Minio) -> str:
    """A bucket of MinIO with ten objects."""
    own = s3_client(minio)
    name = f"t-{uuid.uuid4().hex[:12]}"
    own.create_bucket(Bucket=name)
    for i in range(10):
        own.put_object(Bucket=name, Key=f"train/{i}", Body=b"x" * 50)
    return name


def test_DF12_a_missing_right_to_read_is_a_PermissionError_at_construction(
    start_cluster: Callable[..., Cluster], minio: Minio, cloud: str
) -> None:
    refused = start_cluster(targets=1, env={**minio.env, "AWS_SECRET_ACCESS_KEY": "not-the-secret"})
    client = forebay.Client(refused.endpoint, timeout=15)
    for kind in (MapDataset, IterableDataset):
        with pytest.raises(PermissionError, match=cloud):
            kind(client.bucket(cloud, "s3"))


def test_DF12_a_missing_right_to_write_does_not_matter_for_reading(
    start_cluster: Callable[..., Cluster], minio: Minio, cloud: str
) -> None:
    running = start_cluster(targets=1, env={**minio.env, **reader_of(minio, cloud)})
    bucket = forebay.Client(running.endpoint, timeout=15).bucket(cloud, "s3")
    for kind in (MapDataset, IterableDataset):
        assert dict(kind(bucket)) == {f"train/{i}": b"x" * 50 for i in range(10)}
    with pytest.raises(PermissionError, match=cloud):
        bucket.object("train/new").put(b"refused")


def test_X17_a_snapshot_of_a_cloud_reads_what_it_listed_or_says_ObjectChanged(
    start_cluster: Callable[..., Cluster], minio: Minio, cloud: str
) -> None:
    running = start_cluster(targets=2, env=minio.env)
    bucket = forebay.Client(running.endpoint, timeout=15).bucket(cloud, "s3")
    own = s3_client(minio)
    cold = MapDataset(bucket, snapshot=True)
    own.put_object(Bucket=cloud, Key="train/3", Body=b"y" * 50)
    assert cold[2] == ("train/2", b"x" * 50)
    with pytest.raises(forebay.ObjectChanged, match="train/3 changed since"):
        cold[3]
    warm = MapDataset(bucket, snapshot=True)
    assert [warm[i][1][:1] for i in (2, 3)] == [b"x", b"y"]
    assert dict(IterableDataset(bucket, snapshot=True)) == dict(warm)


def test_X2_a_cloud_is_read_once_although_the_order_was_told_ahead(
    start_cluster: Callable[..., Cluster], minio: Minio, cloud: str
) -> None:
    running = start_cluster(targets=2, env=minio.env)
    dataset = MapDataset(forebay.Client(running.endpoint, timeout=15).bucket(cloud, "s3"))
    for _ in range(2):
        names = [dataset[row][0] for row in prefetch_order(dataset, range(10), ahead=10)]
        assert names == [f"train/{i}" for i in range(10)]
    gets = running.count("forebay_backend_requests_total", op="get", result="ok")
    assert gets <= 10


def test_DP5_a_private_bucket_is_read_with_the_clusters_own_credentials(
    start_cluster: Callable[..., Cluster], minio: Minio, cloud: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Roles, profiles and keys are the targets': a worker that reads has none of them."""
    running = start_cluster(targets=2, env=minio.env)
    for name in minio.env:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_REGION", "nowhere-1")
    client = forebay.Client(running.endpoint, timeout=15)
    prefixes = IterableWrapper([f"s3://{cloud}/train/"])
    urls = prefixes.list_files_by_s3(region="us-east-1", client=client)
    files = urls.load_files_by_s3(region="us-east-1", client=client)
    assert {url: file.read() for url, file in files} == {
        f"s3://{cloud}/train/{i}": b"x" * 50 for i in range(10)
    }


def test_DP5_a_profile_tells_the_cluster_who_it_is(
    start_cluster: Callable[..., Cluster], minio: Minio, cloud: str, tmp_path: Path
) -> None:
    keys, config = tmp_path / "credentials", tmp_path / "config"
    keys.write_text(
        f"[training]\naws_access_key_id = {minio.env['AWS_ACCESS_KEY_ID']}\n"
        f"aws_secret_access_key = {minio.env['AWS_SECRET_ACCESS_KEY']}\n"
    )
    config.write_text("[profile training]\nregion = us-east-1\n")
    env = {
        "AWS_PROFILE": "training",
        "AWS_CONFIG_FILE": str(config),
        "AWS_SHARED_CREDENTIALS_FILE": str(keys),
        "AWS_ENDPOINT_URL": minio.endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    client = forebay.Client(start_cluster(targets=1, env=env).endpoint, timeout=15)
    assert client.bucket(cloud, "s3").object("train/3").get().read_all() == b"x" * 50


def test_DP1_markers_of_folders_in_a_cloud_are_no_files(
    start_cluster: Callable[..., Cluster], minio: Minio, cloud: str
) -> None:
    for folder in ("train/", "train/sub/"):
        s3_client(minio).put_object(Bucket=cloud, Key=folder, Body=b"")
    client = forebay.Client(start_cluster(targets=1, env=minio.env).endpoint, timeout=15)
    for prefix in (f"s3://{cloud}", f"s3://{cloud}/", f"s3://{cloud}/train"):
        urls = IterableWrapper([prefix]).list_files_by_s3(client=client)
        assert list(urls) == [f"s3://{cloud}/train/{i}" for i in range(10)]
