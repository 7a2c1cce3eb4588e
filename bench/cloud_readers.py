"""Readers of objects in clouds, ours and our peers': each takes names and returns how many bytes it read."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from peers import MINIO_PASSWORD, MINIO_USER, Forebay, minio_client

Read = Callable[[list[str]], int]
"""Reads all objects of these names; their bytes."""

S3_BUCKET, GCS_BUCKET = "clouds-aws", "clouds-gcp"
BUCKETS = {"aws": S3_BUCKET, "gcp": GCS_BUCKET}


def readers(provider: str, port: int, workers: int) -> dict[str, Callable[[], Read]]:
    """Makes the readers of a cloud that listens there, by what they are called."""
    if provider == "aws":
        return {
            "boto3, one stream": lambda: boto3_reader(port, 1),
            f"boto3, {workers} threads": lambda: boto3_reader(port, workers),
            f"s3torchconnector, {workers} threads": lambda: s3torchconnector_reader(port, workers),
            f"s3fs, {workers} at once": lambda: s3fs_reader(port, workers),
        }
    return {
        f"gcsfs, {workers} at once": lambda: gcsfs_reader(port, workers),
        f"Dataflux, {workers} threads": lambda: dataflux_reader(port, workers),
    }


def in_threads(workers: int, read_one: Callable[[str], int]) -> Read:
    def read(names: list[str]) -> int:
        with ThreadPoolExecutor(workers) as pool:
            return sum(pool.map(read_one, names))

    return read


def boto3_reader(port: int, workers: int) -> Read:
    client = minio_client(port)
    return in_threads(
        workers, lambda name: len(client.get_object(Bucket=S3_BUCKET, Key=name)["Body"].read())
    )


def s3torchconnector_reader(port: int, workers: int) -> Read:
    from s3torchconnector._s3client import S3Client

    os.environ |= {"AWS_ACCESS_KEY_ID": MINIO_USER, "AWS_SECRET_ACCESS_KEY": MINIO_PASSWORD}
    from s3torchconnector import S3ClientConfig

    config = S3ClientConfig(force_path_style=True)
    client = S3Client("us-east-1", endpoint=f"http://127.0.0.1:{port}", s3client_config=config)
    return in_threads(workers, lambda name: len(client.get_object(S3_BUCKET, name).read()))


def s3fs_reader(port: int, workers: int) -> Read:
    import s3fs

    system = s3fs.S3FileSystem(
        key=MINIO_USER, secret=MINIO_PASSWORD, endpoint_url=f"http://127.0.0.1:{port}"
    )

    def read(names: list[str]) -> int:
        paths = [f"{S3_BUCKET}/{name}" for name in names]
        found = system.cat(paths, batch_size=workers)
        return sum(len(data) for data in found.values())

    return read


def gcsfs_reader(port: int, workers: int) -> Read:
    import gcsfs

    system = gcsfs.GCSFileSystem(token="anon", endpoint_url=f"http://127.0.0.1:{port}")

    def read(names: list[str]) -> int:
        paths = [f"{GCS_BUCKET}/{name}" for name in names]
        return sum(len(data) for data in system.cat(paths, batch_size=workers).values())

    return read


def dataflux_reader(port: int, workers: int) -> Read:
    from dataflux_core.download import download_single
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    client = storage.Client(
        project="bench",
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": f"http://127.0.0.1:{port}"},
    )
    return in_threads(workers, lambda name: len(download_single(client, GCS_BUCKET, name)))


def forebay_reader(server: Forebay, provider: str, batch: int) -> Read:
    import forebay

    bucket = forebay.Client(server.endpoint).bucket(BUCKETS[provider], provider=provider)

    def read(names: list[str]) -> int:
        total = 0
        for at in range(0, len(names), batch):
            reader = bucket.client.batch(bucket=bucket)
            for name in names[at : at + batch]:
                reader.add(name)
            total += sum(len(data) for _, data in reader.get_all())
        return total

    return read
