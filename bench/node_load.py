"""Eight processes of one machine load the same checkpoint: bytes that leave the cluster, and the time.

    python bench/node_load.py --bin build/dist/forebay

Three ways: one process; all processes straight from the cluster; all through a `NodeCache` that they
share. With the cache each byte should leave the cluster once per machine: at most 1.1 times the bytes
that one process loads.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

import measurement
import peers
from checkpoint import state_of
from feeding.reader import LOADED
from measurement import GIB, MIB, Row, judged, shown

PROCESSES = 8
GOAL = 1.1
BUCKET, NAME = "node-load", "model.pt"
MEMORY_FACTOR = 12
"""Free memory that a run needs, in multiples of the checkpoint: a copy for each process, both servers'
page caches, and what saves it."""


def loader(pipe: Any, endpoint: str, folder: str | None) -> None:
    """A process that loads when it is asked to, once; with a folder, through a cache in it."""
    import forebay
    import torch
    from forebay_torch import Checkpoint

    torch.set_num_threads(1)
    cache = forebay.NodeCache(folder) if folder else None
    client = forebay.Client(endpoint)
    checkpoint = Checkpoint(bucket_name=f"ais://{BUCKET}", storage_client=client, node_cache=cache)
    pipe.send("ready")
    pipe.recv()
    start = time.perf_counter()
    state = checkpoint.load(NAME)
    took = time.perf_counter() - start
    pipe.send((took, checks_of(state)))


def checks_of(state: dict[str, Any]) -> list[int]:
    """A sum of the bits of each tensor."""
    import torch

    return [int(tensor.view(torch.int32).sum()) for tensor in state.values()]


def served_bytes(target_url: str) -> int:
    """Bytes of objects that a target sent to its readers so far."""
    lines = peers.call("GET", f"{target_url}/metrics").decode().splitlines()
    counts = (line for line in lines if line.startswith("forebay_get_bytes_total"))
    return sum(int(float(line.rpartition(" ")[2])) for line in counts)


def load_at_once(endpoint: str, count: int, folder: Path | None) -> list[tuple[float, list[int]]]:
    """So many processes load the checkpoint, all begun at the same time: seconds and sums of each."""
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    pipes, processes = [], []
    try:
        for _ in range(count):
            pipe, theirs = context.Pipe()
            arguments = (theirs, endpoint, str(folder) if folder else None)
            process = context.Process(target=loader, args=arguments, daemon=True)
            process.start()
            theirs.close()
            pipes.append(pipe)
            processes.append(process)
        for pipe in pipes:
            pipe.recv()
        for pipe in pipes:
            pipe.send(True)
        return [pipe.recv() for pipe in pipes]
    except EOFError:
        raise RuntimeError(f"a process that loads from {endpoint} ended") from None
    finally:
        for process in processes:
            process.kill()
            process.join()


def size_of(options: argparse.Namespace) -> int:
    """Bytes of the checkpoint: 2 GiB, or what memory allows."""
    wanted = 512 * MIB if options.quick else 2 * GIB
    with open("/proc/meminfo") as file:
        free = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))
    while wanted * MEMORY_FACTOR > free and wanted > 64 * MIB:
        wanted //= 2
    return wanted


def rows(options: argparse.Namespace) -> list[Row]:
    """A row for each way."""
    import forebay
    from forebay_torch import Checkpoint

    size = size_of(options)
    found: list[Row] = []
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(dir=options.out))
        folder = Path(name).absolute()
        more = ("--size", "8GiB")
        server = stack.enter_context(peers.forebay(options.bin, folder / "cluster", 1, *more))
        server.make_bucket(BUCKET)
        client = forebay.Client(server.endpoint)
        state = state_of(size)
        Checkpoint(bucket_name=f"ais://{BUCKET}", storage_client=client).save(state, NAME)
        checks = checks_of(state)
        del state
        target = f"http://{server.address}"
        one = 0
        for way, count, shared in (
            ("one process", 1, None),
            (f"{PROCESSES} processes", PROCESSES, None),
            (f"{PROCESSES} processes, NodeCache", PROCESSES, folder / "shared"),
        ):
            before = served_bytes(target)
            loaded = load_at_once(server.endpoint, count, shared)
            if any(sums != checks for _, sums in loaded):
                raise RuntimeError(f"{way}: another state was loaded")
            served = served_bytes(target) - before
            one = one or served
            row: Row = {
                "row": "one checkpoint, loaded by the processes of a machine",
                "who": way,
                "checkpoint_bytes": size,
                "of_bytes": 2 * GIB,
                "served_bytes": served,
                "slowest_s": max(seconds for seconds, _ in loaded),
            }
            ratio = served / one
            row = judged(row, ratio, GOAL, at_least=False) if shared else row | {"ratio": ratio}
            found.append(shown(row))
    return found


def main() -> None:
    options = measurement.parser(__doc__).parse_args()
    measurement.run(options, rows)


if __name__ == "__main__":
    main()
