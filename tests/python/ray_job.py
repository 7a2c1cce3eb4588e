"""Work with Ray Data: `ray_job.py BUCKET` writes and reads it in several formats, one of them by two
consumers, and a bucket that is missing; prints JSON. Run by test_ray.py."""

from __future__ import annotations

import json
import sys
from typing import Any

import ray
from stack_samples import sample

COUNT = 1000
CONSUMERS = 2


def numbered(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": row["id"], "data": sample(int(row["id"]))}


def shard_row(row: dict[str, Any]) -> dict[str, Any]:
    return {"__key__": f"{row['id']:04}", "txt": f"sample {row['id']}"}


@ray.remote(num_cpus=0)
def consume(rows: Any, epochs: int) -> list[list[int]]:
    """The numbers of each epoch, of which this consumer has a part."""
    seen = []
    for _ in range(epochs):
        numbers = []
        for batch in rows.iter_batches(batch_size=10):
            numbers += batch["id"].tolist()
            assert list(batch["data"]) == [sample(number) for number in batch["id"].tolist()]
        seen.append(numbers)
    return seen


def split(rows: Any) -> list[list[list[int]]]:
    parts = rows.streaming_split(CONSUMERS, equal=True)
    return list(ray.get([consume.remote(part, 2) for part in parts]))


def error_of(call: Any) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def main(folder: str) -> None:
    numbers = ray.data.range(COUNT).map(numbered).repartition(4)
    numbers.write_parquet(f"{folder}/rows")
    ray.data.range(100).map(shard_row).repartition(3).write_webdataset(f"{folder}/shards")
    rows = ray.data.read_parquet(f"{folder}/rows")
    shards = ray.data.read_webdataset(f"{folder}/shards").take_all()
    files = ray.data.read_binary_files(f"{folder}/rows", include_paths=True).take_all()
    none = "s3://no-such-bucket/rows"
    said = {
        "in order": split(rows),
        "shuffled": split(rows.random_shuffle()),
        "shards": sorted(row["txt"] for row in shards),
        "files": {row["path"]: len(row["bytes"]) for row in files},
        "missing read": error_of(lambda: ray.data.read_parquet(none).count()),
        "missing write": error_of(lambda: ray.data.range(10).write_parquet(none)),
    }
    print(json.dumps(said))


if __name__ == "__main__":
    ray.init(
        num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", object_store_memory=200 << 20
    )
    try:
        main(f"s3://{sys.argv[1]}")
    finally:
        ray.shutdown()
