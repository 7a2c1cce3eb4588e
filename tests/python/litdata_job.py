"""Work with LitData: `litdata_job.py write|read|missing BUCKET`; prints JSON. Run by test_litdata.py,
`read` by two ranks."""

from __future__ import annotations

import json
import sys

import litdata
import torch
from stack_samples import sample

COUNT = 1000


def numbered(number: int) -> dict[str, int | bytes]:
    return {"id": number, "data": sample(number)}


def write(remote: str) -> None:
    numbers = list(range(COUNT))
    litdata.optimize(
        fn=numbered, inputs=numbers, output_dir=remote, num_workers=2, chunk_bytes="128KB"
    )
    print(json.dumps({"written": COUNT}))


def read(remote: str) -> None:
    torch.distributed.init_process_group("gloo")
    for shuffle in (False, True):
        dataset = litdata.StreamingDataset(remote, shuffle=shuffle)
        loader = litdata.StreamingDataLoader(dataset, batch_size=10, num_workers=2)
        epochs = []
        for _ in range(2):
            numbers = []
            for batch in loader:
                numbers += batch["id"].tolist()
                assert batch["data"] == [sample(number) for number in batch["id"].tolist()]
            epochs.append(numbers)
        print(json.dumps({"shuffle": shuffle, "epochs": epochs}), flush=True)
    torch.distributed.destroy_process_group()


def missing(remote: str) -> None:
    errors = {}
    try:
        litdata.optimize(fn=numbered, inputs=[1], output_dir=remote, num_workers=1, chunk_size=1)
    except Exception as error:
        errors["write"] = str(error)
    try:
        list(litdata.StreamingDataset(remote))
    except Exception as error:
        errors["read"] = str(error)
    print(json.dumps(errors))


if __name__ == "__main__":
    {"write": write, "read": read, "missing": missing}[sys.argv[1]](f"s3://{sys.argv[2]}/set")
