"""Eight processes of one machine load the same checkpoint: bytes that leave the cluster, and the time.

    python bench/node_load.py --bin build/dist/forebay

Three ways: one process; all processes straight from the cluster; all through `forebay serve` on their
machine, to which the cluster is attached as a remote one, and which keeps what it read. Each byte should
leave the cluster once per machine: at most 1.1 times the bytes that one process loads.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import measurement
import peers
from checkpoint import state_of
from feeding.reader import LOADED
from measurement import GIB, MIB, Row, judged, shown

PROCESSES = 8
GOAL = 1.1
BUCKET, NAME, ALIAS = "node-load", "model.pt", "far"
MEMORY_FACTOR = 12
"""Free memory that a run needs, in multiples of the checkpoint: a copy for each process, both servers'
page caches, and what saves it."""


def loader(pipe: Any, endpoint: str, bucket: str) -> None:
    """A process that loads when it is asked to, once."""
    import forebay
    import torch
    from forebay_torch import Checkpoint

    torch.set_num_threads(1)
    checkpoint = Checkpoint(bucket_name=bucket, storage_client=forebay.Client(endpoint))
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


def load_at_once(endpoint: str, bucket: str, count: int) -> list[tuple[float, list[int]]]:
    """So many processes load the checkpoint, all begun at the same time: seconds and sums of each."""
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    pipes, processes = [], []
    try:
        for _ in range(count):
            pipe, theirs = context.Pipe()
            process = context.Process(target=loader, args=(theirs, endpoint, bucket), daemon=True)
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


@contextlib.contextmanager
def node_server(binary: str, folder: Path, far: str) -> Iterator[str]:
    """`forebay serve` as on a machine of a training job, with the cluster attached; its endpoint."""
    port = peers.free_port(2)
    command = [binary, "serve", "--dir", str(folder), "--port", str(port), "--size", "8GiB"]
    with peers.process(command, (folder / "serve.json").exists):
        endpoint = f"http://127.0.0.1:{port}"
        attach = [binary, "--endpoint", endpoint, "cluster", "remote", "attach"]
        attach.append(f"{ALIAS}={far}")
        subprocess.run(attach, check=True, stdout=subprocess.DEVNULL)
        yield endpoint


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
        near = stack.enter_context(node_server(options.bin, folder / "near", server.endpoint))
        target = f"http://{server.address}"
        one = 0
        for way, endpoint, bucket, count in (
            ("one process", server.endpoint, f"ais://{BUCKET}", 1),
            (f"{PROCESSES} processes, straight", server.endpoint, f"ais://{BUCKET}", PROCESSES),
            (f"{PROCESSES} processes, forebay serve", near, f"ais://@{ALIAS}/{BUCKET}", PROCESSES),
        ):
            before = served_bytes(target)
            loaded = load_at_once(endpoint, bucket, count)
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
            found.append(shown(judged(row, served / one, GOAL, at_least=False)))
    return found


def main() -> None:
    options = measurement.parser(__doc__).parse_args()
    measurement.run(options, rows)


if __name__ == "__main__":
    main()
