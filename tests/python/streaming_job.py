"""Work with MosaicML's Streaming: `streaming_job.py write|read|missing BUCKET`; prints JSON. Run by
test_streaming.py, `read` by two ranks."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys

from stack_samples import sample
from streaming import MDSWriter, StreamingDataset
from torch import distributed
from torch.utils.data import DataLoader

COUNT = 1000
COLUMNS = {"id": "int", "data": "bytes"}


def write(remote: str) -> None:
    options = {"compression": "zstd", "hashes": ["sha1", "xxh64"], "size_limit": 1 << 17}
    with MDSWriter(out=remote, columns=COLUMNS, **options) as out:
        for number in range(COUNT):
            out.write({"id": number, "data": sample(number)})
    print(json.dumps({"written": COUNT}))


def read(remote: str) -> None:
    # As a trainer does. Without it each dataset makes a group of its own and destroys it, and the second
    # one may meet the addresses of the first.
    distributed.init_process_group("gloo")
    # Forked workers would share the connection over which this process read the index.
    multiprocessing.set_forkserver_preload(["streaming"])
    for shuffle in (False, True):
        local = os.path.join(os.environ["HOME"], f"local-{shuffle}")
        dataset = StreamingDataset(
            remote=remote, local=local, shuffle=shuffle, batch_size=10, validate_hash="xxh64"
        )
        loader = DataLoader(
            dataset, batch_size=10, num_workers=2, multiprocessing_context="forkserver"
        )
        epochs = []
        for _ in range(2):
            numbers = []
            for batch in loader:
                numbers += batch["id"].tolist()
                assert batch["data"] == [sample(number) for number in batch["id"].tolist()]
            epochs.append(numbers)
        print(json.dumps({"shuffle": shuffle, "epochs": epochs}), flush=True)
    distributed.destroy_process_group()


def missing(remote: str) -> None:
    errors = {}
    try:
        MDSWriter(out=remote, columns=COLUMNS)
    except Exception as error:
        errors["write"] = str(error)
    try:
        StreamingDataset(remote=remote, local=os.path.join(os.environ["HOME"], "no"), batch_size=1)
    except Exception as error:
        errors["read"] = str(error)
    print(json.dumps(errors))


if __name__ == "__main__":
    {"write": write, "read": read, "missing": missing}[sys.argv[1]](f"s3://{sys.argv[2]}/set")
