"""Work with the Multi-Storage Client: `msc_job.py files|epochs|sync|missing PROFILE`; prints JSON. Run by
test_msc.py, `epochs` by two ranks, which need the files of `files`."""

from __future__ import annotations

import json
import os
import sys
import warnings

import multistorageclient as msc
from stack_samples import sample

COUNT = 200
LARGE_BYTES = (40 << 20) + 321


def files(root: str) -> None:
    for number in range(COUNT):
        with msc.open(f"{root}/set/{number}", "wb") as file:
            file.write(sample(number))
    large = os.urandom(LARGE_BYTES)
    with msc.open(f"{root}/large", "wb") as file:
        file.write(large)
    with msc.open(f"{root}/large", "rb") as file:
        whole = file.read() == large
    with msc.open(f"{root}/large", "rb") as file:
        file.seek(LARGE_BYTES - 100)
        end = file.read() == large[-100:]
    client, folder = msc.resolve_storage_client(root)
    middle = client.read(f"{folder}/large", byte_range=msc.types.Range(1000, 50))
    client.copy(f"{folder}/set/7", f"{folder}/copy")
    client.write(f"{folder}/labelled", b"x", attributes={"label": "cat"})
    said = {
        "whole": whole,
        "end": end,
        "middle": bytes(middle) == large[1000:1050],
        "copy": bytes(client.read(f"{folder}/copy")) == sample(7),
        "label": client.info(f"{folder}/labelled").metadata,
        "names": sorted(int(each.key.rpartition("/")[2]) for each in msc.list(f"{root}/set/")),
        "found": len(msc.glob(f"{root}/set/*")),
        "is_file": [msc.is_file(f"{root}/set/1"), msc.is_file(f"{root}/set")],
    }
    msc.delete(f"{root}/copy")
    said["deleted"] = msc.is_empty(f"{root}/copy")
    print(json.dumps(said))


def epochs(root: str) -> None:
    import torch
    from torch.utils.data import DataLoader, Dataset, DistributedSampler

    class Files(Dataset[int]):
        """The numbers of the files, whose bytes are compared."""

        def __init__(self) -> None:
            self.names = [each.key for each in msc.list(f"{root}/set/")]

        def __len__(self) -> int:
            return len(self.names)

        def __getitem__(self, at: int) -> int:
            number = int(self.names[at].rpartition("/")[2])
            with msc.open(self.names[at], "rb") as file:
                assert file.read() == sample(number)
            return number

    torch.distributed.init_process_group("gloo")
    dataset = Files()
    for shuffle in (False, True):
        sampler = DistributedSampler(dataset, shuffle=shuffle)
        loader = DataLoader(dataset, batch_size=10, num_workers=2, sampler=sampler)
        seen = []
        for epoch in range(2):
            sampler.set_epoch(epoch)
            seen.append([number for batch in loader for number in batch.tolist()])
        print(json.dumps({"shuffle": shuffle, "epochs": seen}), flush=True)
    torch.distributed.destroy_process_group()


def sync(root: str) -> None:
    os.makedirs("there")
    for number in range(30):
        with open(f"there/{number}", "wb") as file:
            file.write(sample(number))
    msc.sync("there/", f"{root}/synced/")
    msc.sync(f"{root}/synced/", "back/")
    same = [open(f"back/{n}", "rb").read() == sample(n) for n in range(30)]
    print(json.dumps({"same": sum(same), "files": len(os.listdir("back"))}))


def missing(root: str) -> None:
    errors = {}
    try:
        msc.open(f"{root}/none", "rb").read()
    except Exception as error:
        errors["read"] = f"{type(error).__name__}: {error}"
    try:
        with msc.open(f"{root}/none", "wb") as file:
            file.write(b"x")
    except Exception as error:
        errors["write"] = f"{type(error).__name__}: {error}"
    print(json.dumps(errors))


if __name__ == "__main__":
    # Each client of AIStore warns that certificates are not verified, over plain HTTP, too.
    warnings.filterwarnings("ignore", "Skipping SSL")
    job = {"files": files, "epochs": epochs, "sync": sync, "missing": missing}[sys.argv[1]]
    job(f"msc://{sys.argv[2]}/{sys.argv[2]}")
