"""The S3 front as s3torchconnector uses it, on the client that mountpoint-s3 has: parallel ranges,
checksums in trailers, checkpoints whole and distributed.

`test_s3_torchconnector.py` runs this file in a process of its own.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from forebay_s3 import LARGE_OBJECT_BYTES, ODD_NAMES, REGION, client, content, objects
from s3torchconnector import (
    S3Checkpoint,
    S3ClientConfig,
    S3IterableDataset,
    S3MapDataset,
    S3Reader,
    S3ReaderConstructor,
)
from s3torchconnector.dcp import S3StorageReader, S3StorageWriter
from torch.utils.data import DataLoader

PART = 5 << 20
CONFIG = S3ClientConfig(force_path_style=True, part_size=PART, max_attempts=1)


@pytest.fixture
def s3_url() -> str:
    """The cluster that the environment names, as settings of the connector."""
    return os.environ["AWS_ENDPOINT_URL"]


@pytest.fixture(scope="session")
def s3() -> Any:
    """boto3 at the same cluster, with the same key and CA."""
    key = {"access": os.environ["AWS_ACCESS_KEY_ID"], "secret": os.environ["AWS_SECRET_ACCESS_KEY"]}
    return client(os.environ["AWS_ENDPOINT_URL"], **key)


def sample(reader: S3Reader) -> tuple[str, bytes]:
    return reader.key, reader.read()


@pytest.fixture
def samples(s3: Any, bucket: str) -> dict[str, bytes]:
    """Objects under `train/`, one over several ranges, beside others."""
    found = {f"train/{n:03}": content(1000 + n, n) for n in range(40)}
    found |= {f"train/{name}": name.encode() for name in ODD_NAMES}
    found["train/large"] = content(LARGE_OBJECT_BYTES)
    for key, body in {**found, "other": b"other"}.items():
        s3.put_object(Bucket=bucket, Key=key, Body=body)
    return found


def test_a_map_dataset_has_every_object_of_a_prefix(
    s3_url: str, bucket: str, samples: dict[str, bytes]
) -> None:
    dataset = S3MapDataset.from_prefix(
        f"s3://{bucket}/train/",
        region=REGION,
        endpoint=s3_url,
        s3client_config=CONFIG,
        transform=sample,
    )
    assert len(dataset) == len(samples)
    assert dict(dataset[i] for i in range(len(dataset))) == samples


def test_workers_share_the_objects_of_an_iterable_dataset(
    s3_url: str, bucket: str, samples: dict[str, bytes]
) -> None:
    dataset = S3IterableDataset.from_prefix(
        f"s3://{bucket}/train/",
        region=REGION,
        endpoint=s3_url,
        s3client_config=CONFIG,
        transform=sample,
        enable_sharding=True,
    )
    assert dict(dataset) == samples
    read = list(DataLoader(dataset, batch_size=None, num_workers=2))
    assert len(read) == len(samples) and dict(read) == samples


def test_ranges_of_an_object_are_read(s3_url: str, bucket: str, samples: dict[str, bytes]) -> None:
    dataset = S3MapDataset.from_objects(
        [f"s3://{bucket}/train/large"],
        region=REGION,
        endpoint=s3_url,
        s3client_config=CONFIG,
        reader_constructor=S3ReaderConstructor.range_based(buffer_size=0),
    )
    with dataset[0] as reader:
        reader.seek(-10, 2)
        assert reader.read() == samples["train/large"][-10:]
        reader.seek(PART - 5)
        assert reader.read(10) == samples["train/large"][PART - 5 : PART + 5]


def test_a_checkpoint_is_saved_in_parts_and_loaded(s3_url: str, s3: Any, bucket: str) -> None:
    checkpoint = S3Checkpoint(region=REGION, endpoint=s3_url, s3client_config=CONFIG)
    state = {"weights": torch.rand(3 << 20), "step": 7}
    with checkpoint.writer(f"s3://{bucket}/a b/ü.pt") as writer:
        torch.save(state, writer)
    head = s3.head_object(Bucket=bucket, Key="a b/ü.pt")
    assert head["ContentLength"] > 12 << 20 and head["ETag"].endswith('-3"')
    with checkpoint.reader(f"s3://{bucket}/a b/ü.pt") as reader:
        loaded = torch.load(reader, weights_only=True)
    assert loaded["step"] == 7 and torch.equal(loaded["weights"], state["weights"])


def test_a_checkpoint_that_fails_leaves_nothing(s3_url: str, s3: Any, bucket: str) -> None:
    checkpoint = S3Checkpoint(region=REGION, endpoint=s3_url, s3client_config=CONFIG)
    with pytest.raises(ZeroDivisionError), checkpoint.writer(f"s3://{bucket}/half.pt") as writer:
        writer.write(content(2 * PART))
        raise ZeroDivisionError
    assert objects(s3, bucket) == {}


# One process is enough, and torch says that there is only one.
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_distributed_checkpoint_is_saved_and_loaded(s3: Any, bucket: str) -> None:
    where = f"s3://{bucket}/run/step-7"
    state = {"model": {"w": torch.rand(3 << 20), "b": torch.rand(10)}, "step": torch.tensor(7)}
    writer = S3StorageWriter(REGION, where, s3client_config=CONFIG)
    dcp.save(state, storage_writer=writer)
    assert {key.rsplit("/", 1)[-1] for key in objects(s3, bucket)} == {".metadata", "__0_0.distcp"}
    # Loading goes into tensors that are there.
    loaded = {
        "model": {"w": torch.zeros(3 << 20), "b": torch.zeros(10)},
        "step": torch.tensor(0),
    }
    reader = S3StorageReader(REGION, where, s3client_config=CONFIG)
    dcp.load(loaded, storage_reader=reader)
    assert loaded["step"] == 7 and torch.equal(loaded["model"]["b"], state["model"]["b"])
    assert torch.equal(loaded["model"]["w"], state["model"]["w"])


def test_files_of_a_checkpoint_are_renamed_and_removed(s3: Any, bucket: str) -> None:
    # As distributed checkpoints write their metadata, and again for a new one.
    fs = S3StorageWriter(REGION, f"s3://{bucket}/run", s3client_config=CONFIG).fs
    with fs.create_stream(f"s3://{bucket}/run/a b+ü.tmp", "wb") as file:
        file.write(b"metadata")
    fs.rename(f"s3://{bucket}/run/a b+ü.tmp", f"s3://{bucket}/run/.metadata")
    assert objects(s3, bucket) == {"run/.metadata": b"metadata"}
    assert fs.exists(f"s3://{bucket}/run/.metadata")
    fs.rm_file(f"s3://{bucket}/run/.metadata")
    assert not fs.exists(f"s3://{bucket}/run/.metadata")
