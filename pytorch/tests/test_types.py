"""Both packages are typed: mypy accepts them, and code that uses them as it should."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")
ROOT = Path(__file__).resolve().parents[2]

RIGHT = """
from collections.abc import Iterator

from forebay import ArchiveConfig, Bucket, Client, Listing, NotFound, Retry, ShardIndex
from forebay_torch import (
    BaseIterDataset,
    BatchIterDataset,
    Config,
    Decoder,
    DistributedShardSampler,
    DynamicBatchSampler,
    IterableDataset,
    MapDataset,
    MixedDataset,
    ParallelMapDataset,
    ShardMapDataset,
    ShardReader,
    ShardWriter,
    ThreadLoader,
    collate,
    prefetch_order,
)
from forebay_torch.compat.aistore import AISMapDataset
from forebay_torch.compat.dataflux.dataflux_mapstyle_dataset import DataFluxMapStyleDataset
from forebay_torch.compat.s3 import S3MapDataset


class Lines(BaseIterDataset):
    def __iter__(self) -> Iterator[bytes]:
        for item in self.worker_objects():
            yield from item.get().read_all().splitlines()


bucket: Bucket = Client().bucket("b").create(exist_ok=True)
listing: Listing = bucket.list_snapshot()
name: str = listing[0][0]
content: bytes = bucket.object(name).get().read_all()
dataset = MapDataset(bucket, prefix_map={bucket: "x"})
sampler = DynamicBatchSampler(dataset, max_batch_size=1, cost_fn=lambda entry: entry.size / 2)
batches: list[list[int]] = list(sampler)
ranked = DistributedShardSampler(dataset, rank=0, world_size=2, equal_length="drop")
ranked.load_state_dict(ranked.state_dict(num_samples=5))
stream = IterableDataset(bucket, on_error="skip", batch_size=4, equal_length="wrap")
state: dict[str, object] = stream.state_dict(num_samples=8)
loader = ThreadLoader(MixedDataset([dataset], weights=[1]), batch_size=4, threads=2)
waited: float = loader.stats().wait_fraction
BatchIterDataset(bucket, max_batch_size=8)
ShardReader(bucket, decode=Decoder(images="tensor"))
AISMapDataset(bucket)
DataFluxMapStyleDataset(project_name="p", bucket_name="b")
S3MapDataset.from_prefix("s3://b/x", region="eu", transform=lambda reader: reader.read())
failed: int = stream.stats().failed
try:
    views: list[memoryview] = bucket.get_many([name])
except NotFound as error:
    print(error.code)
index: ShardIndex = bucket.shard_index("s.tar")
size: int = index["1.jpg"].size
member: bytes = bucket.object("s.tar").get(archive_config=ArchiveConfig("1.jpg")).read_all()
client = Client()
client.batch().add(bucket.object("s.tar"), archpath="1.jpg", start=0, length=9).get_all()
for key, parts in bucket.object("s.tar").samples(keys="basename"):
    print(key, parts["jpg"])
reader = ShardReader(bucket, shuffle_shards=True, decode={"cls": int}, on_error="skip")
told: int = len(prefetch_order(dataset, sampler, ahead=9, batches=2))
with ShardWriter("ais://b/s-%d.tar", maxcount=9, client=client) as writer:
    writer.write({"__key__": "a", "txt": "text", "cls": 1})
ParallelMapDataset(bucket, num_workers=4, on_error="retry:2")
MapDataset(bucket, etl_name="resize", config=Config(download_retry_config=Retry(deadline=9)))
rows = collate([b"a", b"bc"], pad=0)
samples: int = len(reader) + len(ShardMapDataset(bucket, decode=lambda key, parts: parts["jpg"]))
"""

WRONG = """
from forebay import Client

Client().bucket(5)
Client().bucket("b").object("o").put(1)
size: str = Client().bucket("b").list_snapshot()[0][1]
Client(timeout="long")
Client().bucket("b").object("o").samples(keys="wds")
"""


def mypy(*arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
    cache = ROOT / "build/mypy-cache"
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(cache), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "MYPYPATH": path},
        cwd=ROOT,
    )


@pytest.mark.parametrize("package", ["sdk/python/forebay", "pytorch/src/forebay_torch"])
def test_S7_the_packages_are_strictly_typed(package: str) -> None:
    done = mypy(package, path="sdk/python:pytorch/src")
    assert done.returncode == 0, done.stdout


def test_S7_users_code_is_checked_against_the_types(tmp_path: Path) -> None:
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(RIGHT)
    wrong.write_text(WRONG)
    done = mypy(str(right))
    assert done.returncode == 0, done.stdout
    done = mypy(str(wrong))
    lines = {line.split(":")[1] for line in done.stdout.splitlines() if ": error:" in line}
    assert lines == {"4", "5", "6", "7", "8"}, done.stdout
