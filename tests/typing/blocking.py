"""Code of a user of `forebay`: every type below is what the package says, by mypy --strict."""

import io
from collections.abc import Iterator

import forebay
from forebay.testing import Cluster

client = forebay.Client("http://127.0.0.1:7400", timeout=5)
bucket: forebay.Bucket = client.bucket("b", "s3").create(exist_ok=True)
listing: forebay.Listing = bucket.list_snapshot("train/")
name: str = listing[0][0]
rows: list[tuple[str, int]] = listing[1:3]
entries: Iterator[forebay.ObjectEntry] = bucket.list_objects(page_size=10)
item: forebay.Object = bucket.object(name)
props: forebay.ObjectProps = item.put(memoryview(b"x"), num_workers=2)
reader: forebay.Reader = item.get(byte_range=(0, 10), num_workers=4)
received: int = reader.read_into(bytearray(10), 0)
view: memoryview = reader.memoryview()
file: io.BufferedIOBase = reader
with item.get_writer(2) as writer:
    written: int = writer.write(b"part")
stored: int = bucket.put_many([("a", b"1"), ("b", bytearray(b"2"))])
views: list[memoryview] = client.get_many([(bucket, "a")])
mixed: list[memoryview | forebay.ForebayError] = client.get_many([(bucket, "a")], on_error="return")
for result, content in client.batch(["a"], bucket).add("b", start=1, length=2).get():
    failure: forebay.ForebayError | None = result.error
    size: int = result.size + len(content)
status: forebay.JobStatus = bucket.prefetch(prefix="").wait(timeout=3)
dollars: float = bucket.prefetch_plan(prefix="").cost(0.09)
index: forebay.ShardIndex = bucket.shard_index("s.tar")
member: forebay.ShardMember = index["1.jpg"]
cached: memoryview = forebay.NodeCache("cache", limit=1 << 30).get(item)
try:
    item.head()
except forebay.NotFound as error:
    code: str = error.code
with Cluster(size="1GiB", env={"AWS_REGION": "x"}) as cluster:
    own: forebay.Bucket = cluster.bucket()
    endpoint: str = cluster.endpoint
