"""The cost of measuring the waits of a loop: loops with and without measuring, in turns.

    build/venv/bin/python bench/waits.py --bin build/dist/forebay

Each loop is a process of its own. The loops make their passes in turn, so that a machine that is
busy for a while is busy for both. The figure is the ratio of the medians of their passes: 1.01 is 1 %.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import peers

# Objects and their bytes, and the objects of a batch.
DATA = {"small": (20_000, 4 << 10, 256), "large": (256, 1 << 20, 16)}
LOADERS = ("threads", "workers")


def child(endpoint: str, data: str, loader: str, is_measured: bool) -> None:
    """Makes a pass for each line of the input, and prints its seconds."""
    from torch.utils.data import DataLoader

    import forebay
    import forebay.waits
    from forebay_torch import MapDataset, ThreadLoader, observe

    dataset = MapDataset(forebay.Client(endpoint).bucket(data))
    batch = DATA[data][2]
    made: Any
    if loader == "threads":
        if not is_measured:
            # Then no call is observed, and no target is asked for its times.
            forebay.waits.observe = lambda: None
        made = ThreadLoader(dataset, batch, threads=2, collate_fn=list, feed=is_measured)
    else:
        made = DataLoader(dataset, batch, num_workers=2, collate_fn=list, persistent_workers=True)
        made = observe(made) if is_measured else made
    for _ in sys.stdin:
        started = time.perf_counter()
        count = sum(len(samples) for samples in made)
        assert count == DATA[data][0]
        print(time.perf_counter() - started, flush=True)


def compare(endpoint: str, data: str, loader: str, turns: int) -> dict[str, Any]:
    """The ratio of a loop with measuring to the same without, of passes in turns."""
    passes: dict[bool, list[float]] = {False: [], True: []}
    loops = {
        measured: subprocess.Popen(
            [sys.executable, __file__, "--child", endpoint, data, loader, str(int(measured))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for measured in passes
    }
    try:
        for turn in range(turns + 1):
            for measured in (False, True) if turn % 2 else (True, False):
                loop = loops[measured]
                assert loop.stdin is not None and loop.stdout is not None
                loop.stdin.write("pass\n")
                loop.stdin.flush()
                seconds = float(loop.stdout.readline())
                # The first pass starts workers and fills caches.
                if turn:
                    passes[measured].append(seconds)
    finally:
        for loop in loops.values():
            loop.communicate()
    medians = {measured: statistics.median(seconds) for measured, seconds in passes.items()}
    objects = DATA[data][0]
    return {
        "loop": f"{loader}, {data} objects",
        "ratio": round(medians[True] / medians[False], 4),
        "objects_per_s": round(objects / medians[True]),
        "turns": turns,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, default=Path("build/dist/forebay"))
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        endpoint, data, loader, measured = options.child
        child(endpoint, data, loader, measured == "1")
        return
    import forebay

    with tempfile.TemporaryDirectory() as folder:
        with peers.forebay(options.bin, Path(folder) / "forebay", 1, "--size", "4GiB") as server:
            client = forebay.Client(server.endpoint)
            for data, (count, size, _) in DATA.items():
                bucket = client.bucket(data).create()
                bucket.put_many((f"{number:06}", os.urandom(size)) for number in range(count))
            for data in DATA:
                for loader in LOADERS:
                    print(json.dumps(compare(server.endpoint, data, loader, options.turns)), flush=True)


if __name__ == "__main__":
    main()
