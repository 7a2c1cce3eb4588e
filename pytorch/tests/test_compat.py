"""Programs written for other projects' datasets run with one import changed."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_jobs import run_ranks
from torch.utils.data import DataLoader

import forebay
from forebay_torch import Fields
from shard_files import tar

CONTENTS = {f"train/{i}": bytes([65 + i]) * (i + 1) for i in range(10)}


@pytest.fixture
def filled(bucket: forebay.Bucket) -> forebay.Bucket:
    bucket.put_many(CONTENTS.items())
    bucket.object("test/0").put(b"other")
    return bucket


def test_the_articles_loops_over_aistore_run(filled: forebay.Bucket, cluster: Any) -> None:
    from forebay_torch.compat.aistore import AISIterDataset, Client

    bucket = Client(cluster.endpoint).bucket(filled.name).create(exist_ok=True)
    iter_dataset = AISIterDataset(ais_source_list=bucket)
    assert {name: data for name, data in iter_dataset} == {**CONTENTS, "test/0": b"other"}
    loader = DataLoader(iter_dataset, batch_size=4, num_workers=2)
    assert sorted(name for names, data in loader for name in names)[0] == "test/0"


def test_buckets_of_aistores_own_sdk_are_sources(filled: forebay.Bucket, cluster: Any) -> None:
    sdk = pytest.importorskip("aistore.sdk")
    from forebay_torch.compat.aistore import (
        AISBatchIterDataset,
        AISIterDataset,
        AISMapDataset,
        DynamicBatchSampler,
    )

    client = sdk.Client(cluster.endpoint)
    bucket = client.bucket(filled.name).create(exist_ok=True)
    dataset = AISMapDataset(ais_source_list=bucket, prefix_map={bucket: ["train/1", "train/2"]})
    assert list(dataset) == [("train/1", b"BB"), ("train/2", b"CCC")]
    loader = DataLoader(
        dataset=dataset,
        batch_sampler=DynamicBatchSampler(
            data_source=dataset, max_batch_size=4_000_000, shuffle=True
        ),
        num_workers=1,
    )
    assert [sorted(names) for names, _ in loader] == [["train/1", "train/2"]]
    group = bucket.objects(obj_names=["train/3", "train/0"])
    assert list(AISIterDataset(group)) == [("train/3", b"DDDD"), ("train/0", b"A")]
    batches = AISBatchIterDataset(bucket, client, prefix_map={bucket: "test/"}, max_batch_size=4)
    assert list(batches) == [("test/0", b"other")]


def test_custom_datasets_of_aistores_base_classes_run(filled: forebay.Bucket) -> None:
    from forebay_torch.compat.aistore import AISBaseIterDataset, AISBaseMapDataset

    class Sizes(AISBaseIterDataset):
        def __init__(self, source: Any, prefix_map: Any) -> None:
            super().__init__(ais_source_list=source, prefix_map=prefix_map)

        def __iter__(self) -> Iterator[int]:
            self._reset_iterator()
            worker_iter, _ = self._get_worker_iter_info()
            for obj in worker_iter:
                yield len(BytesIO(obj.get().read_all()).getvalue())

    class Upper(AISBaseMapDataset):
        def __getitem__(self, index: int) -> bytes:
            content: bytes = self.get_obj_list()[index].get_reader().read_all()
            return content.upper()

    assert list(Sizes(filled, {filled: "train/"})) == list(range(1, 11))
    assert Upper(ais_source_list=[filled], prefix_map={filled: "test/"})[0] == b"OTHER"


def test_aistores_shard_reader_and_streams(bucket: forebay.Bucket) -> None:
    from forebay_torch.compat.aistore import AISMultiShardStream, AISShardReader, DataShard

    bucket.object("s.tar").put(tar([("d/1.png", b"p"), ("d/1.cls", b"0"), ("d/2.png", b"q")]))
    bucket.object("t.tar").put(tar([("1.x", b"1"), ("2.x", b"2"), ("3.x", b"3")]))
    reader = AISShardReader(bucket_list=bucket, prefix_map={bucket: "s"})
    loader = DataLoader(reader, batch_size=60, num_workers=1)
    (batch,) = list(loader)
    assert list(batch[0]) == ["1", "2"]
    assert isinstance(batch[1], Fields) and batch[1]["cls"] == [b"0", b""]
    stream = AISMultiShardStream(data_sources=[DataShard(bucket, "s"), DataShard(bucket, "t")])
    assert list(stream) == [(b"p", b"1"), (b"0", b"2"), (b"q", b"3")]


def test_the_connectors_loops_over_google_run(filled: forebay.Bucket) -> None:
    from forebay_torch.compat.dataflux import dataflux_iterable_dataset, dataflux_mapstyle_dataset

    where = {"project_name": "project", "bucket_name": f"ais://{filled.name}"}
    map_dataset = dataflux_mapstyle_dataset.DataFluxMapStyleDataset(
        **where,
        config=dataflux_mapstyle_dataset.Config(prefix="train/"),
        data_format_fn=lambda content: content.lower(),
    )
    sample_object = map_dataset.objects[0]
    assert (sample_object[0], sample_object[1]) == ("train/0", 1)
    assert list(map_dataset)[:2] == [b"a", b"bb"]
    iterable_dataset = dataflux_iterable_dataset.DataFluxIterableDataset(
        **where, config=dataflux_mapstyle_dataset.Config(prefix="test/")
    )
    assert list(iterable_dataset) == [b"other"]
    slow = dataflux_mapstyle_dataset.DatafluxMapStyleDataset(
        **where,
        config=dataflux_mapstyle_dataset.Config(
            prefix="train/", max_composite_object_size=0, disable_compose=True
        ),
    )
    assert slow.__getitems__([0, 9]) == [b"A", b"J" * 10]


def test_a_client_of_google_that_is_passed_is_not_used_and_that_is_said() -> None:
    from forebay_torch.compat.dataflux.dataflux_mapstyle_dataset import cloud_uri, cluster_client

    assert cloud_uri("images") == "gs://images"
    assert cloud_uri("s3://images") == "s3://images"
    with pytest.warns(UserWarning, match="storage_client of type object is not used"):
        assert cluster_client(object()) is None


def test_checkpoints_of_dataflux_are_saved_and_loaded(bucket: forebay.Bucket) -> None:
    from forebay_torch.compat.dataflux import dataflux_checkpoint

    with pytest.warns(UserWarning, match="storage_client of type object is not used"):
        google = dataflux_checkpoint.DatafluxCheckpoint("project", "b", object())
    assert google.reader("k").name == "gs://b/k"
    checkpoint = dataflux_checkpoint.DatafluxCheckpoint(
        project_name="project", bucket_name=bucket.uri
    )
    with checkpoint.writer("checkpoints/epoch0.ckpt") as writer:
        torch.save({"weight": torch.ones(3)}, writer)
    with checkpoint.reader("checkpoints/epoch0.ckpt") as reader:
        assert torch.equal(torch.load(reader)["weight"], torch.ones(3))


@pytest.mark.filterwarnings("ignore:.*unavailable or uninitialized")
def test_distributed_checkpoints_of_dataflux_need_no_lightning(bucket: forebay.Bucket) -> None:
    import torch.distributed.checkpoint as dcp
    from forebay_torch.compat.dataflux.lightning.gcs_filesystem import (
        GCSDistributedReader,
        GCSDistributedWriter,
        GCSFileSystem,
    )

    path, state = f"{bucket.uri}/c", {"weight": torch.ones(3)}
    dcp.save(state, storage_writer=GCSDistributedWriter(path, "project", None))
    loaded = {"weight": torch.zeros(3)}
    dcp.load(loaded, storage_reader=GCSDistributedReader(path, "project", bucket.client))
    assert torch.equal(loaded["weight"], torch.ones(3))
    files = pickle.loads(pickle.dumps(GCSFileSystem("project", False, bucket.client)))
    assert files.exists(f"{path}/.metadata")


def key_and_size(reader: Any) -> tuple[str, int]:
    return reader.key, len(reader.read())


def test_datasets_from_a_prefix_and_from_objects(filled: forebay.Bucket) -> None:
    from forebay_torch.compat.s3 import S3IterableDataset, S3MapDataset, S3Reader

    uri = f"ais://{filled.name}"
    dataset = S3MapDataset.from_prefix(f"{uri}/train/", region="us-east-1")
    assert len(dataset) == 10
    reader = dataset[3]
    assert isinstance(reader, S3Reader)
    assert (reader.bucket, reader.key, reader.read()) == (filled.name, "train/3", b"DDDD")
    assert reader.seek(-2, 2) == 2 and reader.read() == b"DD" and reader.read() == b""
    chosen = S3MapDataset.from_objects(
        [f"{uri}/train/2", f"{uri}/train/0"], region="eu", transform=key_and_size
    )
    assert list(DataLoader(chosen, batch_size=None)) == [["train/2", 3], ["train/0", 1]]
    stream = S3IterableDataset.from_prefix(f"{uri}/test/", region="eu", transform=key_and_size)
    assert list(pickle.loads(pickle.dumps(stream))) == [("test/0", 5)]
    with pytest.raises(ValueError, match="names a bucket, not an object"):
        len(S3MapDataset.from_objects(uri, region="eu"))


def test_an_s3_dataset_lists_when_it_is_first_needed(cluster: Any) -> None:
    from forebay_torch.compat.s3 import S3MapDataset

    S3MapDataset.from_prefix("s3://there-is-no-such-bucket/x", region="eu")


def test_s3_workers_share_the_objects_only_with_enable_sharding(filled: forebay.Bucket) -> None:
    from forebay_torch.compat.s3 import S3IterableDataset

    for sharded in (True, False):
        stream = S3IterableDataset.from_prefix(
            f"ais://{filled.name}/train/",
            region="eu",
            transform=key_and_size,
            enable_sharding=sharded,
        )
        found = list(DataLoader(stream, batch_size=None, num_workers=2))
        assert len(found) == (10 if sharded else 20)


def test_a_sequential_batch_is_one_request_and_a_range_reader_reads_ranges(
    filled: forebay.Bucket, cluster: Any
) -> None:
    from forebay_torch.compat.s3 import S3MapDataset, S3ReaderConstructor

    filled.object("large").put(bytes(range(256)) * 100)
    uri = f"ais://{filled.name}"
    entries = cluster.count("forebay_batch_entries_total")
    whole = S3MapDataset.from_prefix(f"{uri}/train/", region="eu", transform=key_and_size)
    assert len(whole.__getitems__([0, 1, 2])) == 3
    assert cluster.count("forebay_batch_entries_total") - entries == 3
    ranged = S3MapDataset.from_prefix(
        f"{uri}/large",
        region="eu",
        reader_constructor=S3ReaderConstructor.range_based(buffer_size=512),
    )
    read = cluster.count("forebay_get_bytes_total")
    reader = ranged[0]
    assert reader.seek(1000) == 1000
    assert reader.read(4) == bytes([232, 233, 234, 235])
    assert reader.seek(0, 2) == 25600 and reader.read() == b""
    assert reader.seek(30000) == 30000 and reader.read(1) == b""
    assert 0 < cluster.count("forebay_get_bytes_total") - read < 5000


def test_s3_ranks_share_the_objects_in_workers_that_are_not_forked(
    filled: forebay.Bucket, tmp_path: Path
) -> None:
    endpoint = filled.client.endpoint
    outputs = run_ranks("share", 2, tmp_path, endpoint, f"{filled.uri}/train/")
    lines = [output.splitlines() for output in outputs]
    assert [len(read) for read in lines] == [5, 5]
    assert sorted(sum(lines, [])) == sorted(f"train/{i} {i + 1}" for i in range(10))


def test_readers_leave_a_worker_with_their_content_and_position(filled: forebay.Bucket) -> None:
    from forebay_torch.compat.s3 import S3MapDataset, S3Reader, S3ReaderConstructor

    def started(reader: Any) -> Any:
        assert reader.read(2) == b"DD"
        return reader

    filled.object("broken").put(b"1")
    for constructor in (
        S3ReaderConstructor.sequential(),
        S3ReaderConstructor.range_based(),
        S3ReaderConstructor.range_based(0),
        S3ReaderConstructor.dcp_optimized(),
        S3ReaderConstructor.default(),
    ):
        dataset = S3MapDataset.from_objects(
            f"{filled.uri}/train/3", reader_constructor=constructor, transform=started
        )
        loader = DataLoader(dataset, batch_size=None, num_workers=1, timeout=20)
        (reader,) = loader
        assert isinstance(reader, S3Reader)
        assert (reader.bucket, reader.key) == (filled.name, "train/3")
        assert reader.read() == b"DD" and reader.seek(0) == 0 and reader.read() == b"DDDD"


def test_the_reader_for_distributed_checkpoints_is_taken_where_s3torchconnector_takes_it(
    filled: forebay.Bucket, client: forebay.Client
) -> None:
    import torch.distributed.checkpoint as dcp

    from forebay_torch.compat.s3 import S3Checkpoint, S3ReaderConstructor
    from forebay_torch.dcp import StorageReader, StorageWriter

    constructor = S3ReaderConstructor.dcp_optimized(max_gap_size=1 << 20)
    with pytest.raises(ValueError, match="max_gap_size"):
        S3ReaderConstructor.dcp_optimized(max_gap_size=-1)
    uri = f"{filled.uri}/step-1"
    dcp.save({"w": torch.arange(9)}, storage_writer=StorageWriter(uri, None, client), no_dist=True)
    loaded = {"w": torch.zeros(9, dtype=torch.int64)}
    reader = StorageReader(uri, None, client, reader_constructor=constructor)
    dcp.load(loaded, storage_reader=reader, no_dist=True)
    assert loaded["w"].tolist() == list(range(9))
    for chosen in (constructor, S3ReaderConstructor.sequential()):
        files = S3Checkpoint(region="eu", client=client, reader_constructor=chosen)
        with files.reader(f"{filled.uri}/train/3") as file:
            assert (file.key, file.read()) == ("train/3", b"DDDD")
