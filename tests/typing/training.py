"""Code of users that is right: mypy --strict accepts it. It is checked, not run."""

from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader
from forebay import ArchiveConfig, Bucket, Client, Listing, NotFound, Retry, ShardIndex
from forebay_torch import (
    BaseIterDataset,
    BatchIterDataset,
    Checkpoint,
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
    observe,
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
cold_s: float = loader.stats().causes["cold"]
table: str = loader.stats().table()
observed = observe(DataLoader(dataset, batch_size=4), report=True, trace_file="trace.json", name="job")
for observed_batch in observed:
    print(observed_batch)
observed.stats().write_trace("trace.json")
steps: int = observed.stats().steps
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
hinted: int = len(prefetch_order(dataset, sampler, ahead=9, batches=2))
with ShardWriter("ais://b/s-%d.tar", maxcount=9, client=client) as writer:
    writer.write({"__key__": "a", "txt": "text", "cls": 1})
ParallelMapDataset(bucket, num_workers=4, on_error="retry:2")
MapDataset(bucket, etl_name="resize", config=Config(download_retry_config=Retry(deadline=9)))
rows = collate([b"a", b"bc"], pad=0)
samples: int = len(reader) + len(ShardMapDataset(bucket, decode=lambda key, parts: parts["jpg"]))
checkpoint = Checkpoint(bucket_name="ais://b")
with checkpoint.writer("a.pt") as file, checkpoint.reader("b.pt") as other:
    torch.save(torch.load(other, weights_only=True), file)
saved: str = checkpoint.save_async({"step": 1}, "a.pt").result(9)
newest: str | None = checkpoint.latest()
