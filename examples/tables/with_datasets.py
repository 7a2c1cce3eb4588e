"""A data set of Hugging Face in a bucket: saved, loaded, and streamed.

    FOREBAY_ENDPOINT=http://127.0.0.1:7400 python examples/tables/with_datasets.py fb://bucket/hf
"""

from __future__ import annotations

import sys
import tempfile

from datasets import Dataset, load_dataset, load_from_disk


def main(folder: str) -> None:
    made = Dataset.from_dict({"text": [f"line {i}" for i in range(1000)], "id": list(range(1000))})
    made.save_to_disk(f"{folder}/saved", num_shards=2)
    loaded = load_from_disk(f"{folder}/saved")
    made.to_parquet(f"{folder}/files/a.parquet")
    made.to_json(f"{folder}/files/b.jsonl")
    with tempfile.TemporaryDirectory() as cache:
        parquet = load_dataset("parquet", data_files=f"{folder}/files/*.parquet", cache_dir=cache)
        stream = load_dataset(
            "json", data_files=f"{folder}/files/*.jsonl", split="train", streaming=True
        )
        first = next(iter(stream))
        print(f"{len(loaded)} saved, {len(parquet['train'])} of parquet, streamed {first}")


if __name__ == "__main__":
    main(sys.argv[1].rstrip("/"))
