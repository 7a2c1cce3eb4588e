"""Buckets for the documents' data: native ones, and ones that a cloud holds.

A test takes ``bucket_for(request)`` in a fixture whose parameters are names of fixtures here. A test that
reads it loops by ``for _ in bucket.passes():``: one pass over a native bucket, two over one of a cloud.
"""

from __future__ import annotations

import json
import urllib.request
import uuid
from collections.abc import Callable, Iterable, Iterator

import pytest
from forebay_clouds import FakeGcs, Minio
from forebay_cluster import Cluster

import forebay

__all__ = [
    "DocumentBucket",
    "article_bucket",
    "article_bucket_behind_s3",
    "bucket_for",
    "gs_bucket",
    "gs_cluster",
    "native_bucket",
    "s3_bucket",
    "s3_cluster",
]

# The bucket of document 002.
ARTICLE_BUCKET = "my-bck"


class DocumentBucket:
    """An empty bucket for the data of one test, in a cluster that FOREBAY_ENDPOINT names meanwhile.

    Attributes:
        bucket: The bucket as the cluster has it.
        cloud: The provider whose requests the targets count, such as ``gcp``; "" for a native bucket.
    """

    def __init__(
        self,
        bucket: forebay.Bucket,
        cluster: Cluster,
        cloud: str = "",
        put_in_cloud: Callable[[str, bytes], None] | None = None,
    ) -> None:
        self.bucket = bucket
        self.cluster = cluster
        self.cloud = cloud
        self._put_in_cloud = put_in_cloud

    @property
    def storage(self) -> str:
        """``native`` or ``cloud``, as the count of blocks has it."""
        return "cloud" if self.cloud else "native"

    @property
    def gs_name(self) -> str:
        """The name of a bucket of Google Cloud Storage: its bare name, or a native bucket's URI."""
        return self.bucket.name if self.cloud else self.bucket.uri

    @property
    def gcs_uri(self) -> str:
        """``gcs://NAME``, or a native bucket's URI."""
        return f"gcs://{self.bucket.name}" if self.cloud else self.bucket.uri

    def put_many(self, items: Iterable[tuple[str, bytes]]) -> None:
        """Stores objects; those of a cloud past the cluster, which then has nothing of them."""
        if self._put_in_cloud is None:
            self.bucket.put_many(items)
            return
        for name, content in items:
            self._put_in_cloud(name, content)

    def passes(self) -> Iterator[str]:
        """``native``; or ``cold``, for which the cluster drops its copies, and then ``warm``.

        The cold pass must read objects from the cloud, no byte of them twice, and the warm pass none.
        """
        if not self.cloud:
            yield "native"
            return
        self.bucket.evict(prefix="").wait(60)
        before = self._cloud_reads()
        yield "cold"
        requests, size = self._cloud_reads()
        fetched = size - before[1]
        assert requests > before[0] and 0 < fetched <= self.bucket.list_snapshot().total_size
        yield "warm"
        assert self._cloud_reads() == (requests, size), "a warm pass reads nothing from the cloud"

    def _cloud_reads(self) -> tuple[float, float]:
        """Requests for objects and bytes of objects that the targets have had from the cloud."""
        requests = self.cluster.count("forebay_backend_requests_total", op="get", provider=self.cloud)
        return requests, self.cluster.count("forebay_backend_bytes_total", provider=self.cloud)


def bucket_for(request: pytest.FixtureRequest) -> DocumentBucket:
    """The bucket of the fixture that a parameter names."""
    made: DocumentBucket = request.getfixturevalue(request.param)
    return made


@pytest.fixture
def native_bucket(bucket: forebay.Bucket, cluster: Cluster) -> DocumentBucket:
    """A native bucket."""
    return DocumentBucket(bucket, cluster)


@pytest.fixture(scope="session")
def gs_cluster(
    tmp_path_factory: pytest.TempPathFactory, fake_gcs: FakeGcs
) -> Iterator[Cluster]:
    """One gateway and two targets that read from fake-gcs-server."""
    running = Cluster.start(tmp_path_factory.mktemp("gs-cluster"), targets=2, env=fake_gcs.env)
    yield running
    running.stop()


@pytest.fixture(scope="session")
def s3_cluster(tmp_path_factory: pytest.TempPathFactory, minio: Minio) -> Iterator[Cluster]:
    """One gateway and two targets that read from MinIO."""
    running = Cluster.start(tmp_path_factory.mktemp("s3-cluster"), targets=2, env=minio.env)
    yield running
    running.stop()


@pytest.fixture
def gs_bucket(
    gs_cluster: Cluster, fake_gcs: FakeGcs, monkeypatch: pytest.MonkeyPatch
) -> DocumentBucket:
    """``gs://NAME`` on fake-gcs-server."""
    monkeypatch.setenv("FOREBAY_ENDPOINT", gs_cluster.endpoint)
    name = f"t-{uuid.uuid4().hex[:12]}"
    fake_gcs.create_bucket(name)
    bucket = forebay.Client(gs_cluster.endpoint, timeout=20).bucket(name, "gs")
    return DocumentBucket(
        bucket, gs_cluster, "gcp", lambda object_name, content: fake_gcs.put(name, object_name, content)
    )


@pytest.fixture
def s3_bucket(
    s3_cluster: Cluster, minio: Minio, monkeypatch: pytest.MonkeyPatch
) -> DocumentBucket:
    """``s3://NAME`` on MinIO."""
    monkeypatch.setenv("FOREBAY_ENDPOINT", s3_cluster.endpoint)
    name, put = _bucket_of_minio(minio)
    bucket = forebay.Client(s3_cluster.endpoint, timeout=20).bucket(name, "s3")
    return DocumentBucket(bucket, s3_cluster, "aws", put)


@pytest.fixture
def article_bucket(client: forebay.Client, cluster: Cluster) -> Iterator[DocumentBucket]:
    """``ais://my-bck``, a native bucket."""
    bucket = client.bucket(ARTICLE_BUCKET).create()
    yield DocumentBucket(bucket, cluster)
    bucket.delete()


@pytest.fixture
def article_bucket_behind_s3(
    s3_cluster: Cluster, minio: Minio, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DocumentBucket]:
    """``ais://my-bck``, which stands for a bucket of MinIO."""
    monkeypatch.setenv("FOREBAY_ENDPOINT", s3_cluster.endpoint)
    name, put = _bucket_of_minio(minio)
    properties = {"backend": {"type": "s3", "bucket": name, "endpoint": minio.endpoint}}
    request = urllib.request.Request(
        f"{s3_cluster.endpoint}/v1/buckets/{ARTICLE_BUCKET}",
        json.dumps({"action": "create-bck", "value": properties}).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=20):
        pass
    bucket = forebay.Client(s3_cluster.endpoint, timeout=20).bucket(ARTICLE_BUCKET)
    yield DocumentBucket(bucket, s3_cluster, "aws", put)
    bucket.delete()


def _bucket_of_minio(minio: Minio) -> tuple[str, Callable[[str, bytes], None]]:
    """A new bucket, and what puts an object there past any cluster."""
    name, own = minio.new_bucket()

    def put(object_name: str, content: bytes) -> None:
        own.put_object(Bucket=name, Key=object_name, Body=content)

    return name, put
