"""Side by side with the peers that are installed: checkpoints saved and loaded.

    python bench/checkpoint.py --bin build/dist/forebay --minio MINIO

The same state goes by `torch.save` and `torch.load` through s3fs and s3torchconnector to MinIO, and
through `forebay_torch.Checkpoint` to a native bucket and to a bucket of the same MinIO, written
through. All take turns. In the same turns the roofs are measured: a synced `cp` of the file on this
disk, and `torch.save` and `torch.load` in memory. Only ratios mean something; the floors beside them
are what the connector of Google's had over s3fs and gcsfs at that size.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import measurement
import peers
from feeding.reader import cpu_s, memory
from peers import MINIO_PASSWORD, MINIO_USER

MB, MIB = 1_000_000, 1 << 20
BUCKET = "checkpoints"
NATIVE = "native-checkpoints"
REGION = "us-east-1"
Row = dict[str, Any]
Open = Callable[[str], contextlib.AbstractContextManager[Any]]
OURS, THROUGH = "Forebay", "Forebay, through to MinIO"
COPY, MEMORY = "roof: cp, synced", "roof: torch in memory"
# Bytes, and by how much the connector was faster than what came without it: saving, loading.
SIZES = {
    75_600_000: (1.4, 4.7),
    298 * MB: (2.8, 1.6),
    2_500 * MB: (4.1, 12.6),
    24_200 * MB: (11.7, 18.5),
}
GROWTH_BYTES = 1 << 30
TENSORS = 48


@dataclass(frozen=True)
class Way:
    """Files to save to and to load from, by name; and what deletes one."""

    writer: Open
    reader: Open
    remove: Callable[[str], None]
    servers: tuple[int, ...] = ()
    """Processes that work for it."""


@dataclass(frozen=True)
class Cost:
    """A save or a load: seconds, and CPU seconds of this process and of the servers."""

    seconds: float
    client_s: float | None = None
    server_s: float | None = None


def s3fs_way(endpoint: str) -> Way:
    import s3fs

    system = s3fs.S3FileSystem(
        key=MINIO_USER, secret=MINIO_PASSWORD, endpoint_url=endpoint, use_listings_cache=False
    )
    return Way(
        lambda name: system.open(f"{BUCKET}/{name}", "wb"),
        lambda name: system.open(f"{BUCKET}/{name}", "rb"),
        lambda name: system.rm_file(f"{BUCKET}/{name}"),
    )


def s3torch_way(endpoint: str) -> Way:
    from s3torchconnector import S3Checkpoint, S3ClientConfig

    os.environ |= {"AWS_ACCESS_KEY_ID": MINIO_USER, "AWS_SECRET_ACCESS_KEY": MINIO_PASSWORD}
    checkpoint = S3Checkpoint(
        REGION, endpoint=endpoint, s3client_config=S3ClientConfig(force_path_style=True)
    )
    port = int(endpoint.rpartition(":")[2])
    return Way(
        lambda name: checkpoint.writer(f"s3://{BUCKET}/{name}"),
        lambda name: checkpoint.reader(f"s3://{BUCKET}/{name}"),
        lambda name: peers.minio_client(port).delete_object(Bucket=BUCKET, Key=name),
    )


def our_way(endpoint: str, bucket: str) -> Way:
    import forebay
    from forebay_torch import Checkpoint

    checkpoint = Checkpoint(bucket_name=bucket, storage_client=forebay.Client(endpoint))
    return Way(checkpoint.writer, checkpoint.reader, checkpoint.remove)


def available(make: Callable[..., Way], *arguments: Any) -> Way | None:
    try:
        return make(*arguments)
    except ImportError as error:
        print(f"not measured: {error}", file=sys.stderr)
        return None


def state_of(size: int) -> dict[str, Any]:
    """Returns so many bytes of random weights, in tensors of a few sizes."""
    import torch

    shares = [1 + i % 4 for i in range(TENSORS)]
    rows = size // 4 // sum(shares)
    return {f"layer.{i}.weight": torch.randn(rows * share) for i, share in enumerate(shares)}


def timed_save(way: Way, state: dict[str, Any], name: str) -> float:
    import torch

    start = time.perf_counter()
    with way.writer(name) as file:
        torch.save(state, file)
    return time.perf_counter() - start


def timed_load(way: Way, state: dict[str, Any], name: str) -> float:
    import torch

    start = time.perf_counter()
    with way.reader(name) as file:
        loaded = torch.load(file, weights_only=True)
    took = time.perf_counter() - start
    last = f"layer.{TENSORS - 1}.weight"
    if loaded.keys() != state.keys() or not torch.equal(loaded[last], state[last]):
        sys.exit(f"error: {name}: another state came back")
    return took


def cost_of(timed: Callable[..., float], way: Way, state: dict[str, Any], name: str) -> Cost:
    """Runs `timed_save` or `timed_load`."""
    before = time.process_time(), sum(map(cpu_s, way.servers))
    seconds = timed(way, state, name)
    mine, theirs = time.process_time(), sum(map(cpu_s, way.servers))
    return Cost(seconds, mine - before[0], theirs - before[1])


def roofs(folder: Path, state: dict[str, Any]) -> dict[str, tuple[Cost, Cost]]:
    """Costs of each roof: to save, to load."""
    import torch

    file, copy = folder / "roof", folder / "roof.copy"
    if not file.exists():
        torch.save(state, file)
    start = time.perf_counter()
    shutil.copyfile(file, copy)
    with copy.open("rb+") as written:
        os.fsync(written.fileno())
    copied = time.perf_counter() - start
    copy.unlink()
    memory = io.BytesIO()
    start = time.perf_counter()
    torch.save(state, memory)
    saved = time.perf_counter() - start
    memory.seek(0)
    start = time.perf_counter()
    torch.load(memory, weights_only=True)
    loaded = time.perf_counter() - start
    return {COPY: (Cost(copied), Cost(copied)), MEMORY: (Cost(saved), Cost(loaded))}


def measure(size: int, ways: dict[str, Way], rounds: int, folder: Path) -> list[Row]:
    """All ways and the roofs in turns."""
    state = state_of(size)
    bytes_ = sum(tensor.nbytes for tensor in state.values())
    costs: dict[str, list[tuple[Cost, Cost]]] = {}
    for turn in range(rounds + 1):
        took = roofs(folder, state)
        for name, way in ways.items():
            saved = cost_of(timed_save, way, state, "c.pt")
            took[name] = (saved, cost_of(timed_load, way, state, "c.pt"))
            way.remove("c.pt")
            gc.collect()
        if turn > 0:  # the first turn warms caches
            for name, pair in took.items():
                costs.setdefault(name, []).append(pair)
    (folder / "roof").unlink()
    rows = []
    for name, pairs in costs.items():
        pids = ways[name].servers if name in ways else ()
        row: Row = {"size": size, "bytes": bytes_, "way": name}
        row["server_memory"] = sum(map(memory, pids)) if pids else None
        for what, all_of in zip(("save", "load"), zip(*pairs, strict=True), strict=True):
            all_s = [cost.seconds for cost in all_of]
            row[f"{what}_bytes_per_s"] = bytes_ / statistics.median(all_s)
            row[f"{what}_spread"] = measurement.spread(all_s)
            for side in ("client", "server"):
                spent = [getattr(cost, f"{side}_s") for cost in all_of]
                row[f"{what}_{side}_s"] = None if None in spent else statistics.median(spent)
        rows.append(row)
    return rows


def show(rows: list[Row], floors: tuple[float, float] | None) -> None:
    print(f"\n{rows[0]['bytes'] / MB:,.1f} MB")
    heads = "".join(f" {what + ' MB/s':>10} {'spread':>7} {'ours is':>9}" for what in ("save", "load"))
    print(f"  {'':<28}{heads}")
    ours = next(row for row in rows if row["way"] == OURS)
    for row in rows:
        cells = ""
        for what in ("save", "load"):
            rate = row[f"{what}_bytes_per_s"]
            ratio = ours[f"{what}_bytes_per_s"] / rate
            cells += f" {rate / MB:>10,.0f} {row[f'{what}_spread']:>7.2f} {ratio:>7.2f} x"
        print(f"  {row['way']:<28}{cells}")
    if floors:
        print(f"  floors over s3fs: save {floors[0]} x, load {floors[1]} x")
    sys.stdout.flush()


GROWTH = """
import re, sys, torch, forebay
from forebay_torch import Checkpoint
def memory(what):
    return int(re.search(what + r":\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024
checkpoint = Checkpoint(bucket_name=sys.argv[2], storage_client=forebay.Client(sys.argv[1]))
state = {str(i): torch.full((int(sys.argv[3]) // 64,), float(i)) for i in range(16)}
checkpoint.save(torch.ones(9), "small.pt")
# The peak begins anew; that of getrusage would be inherited from the process that started this one.
open("/proc/self/clear_refs", "w").write("5")
before = memory("VmRSS")
checkpoint.save(state, "large.pt")
print(memory("VmHWM") - before)
checkpoint.remove("large.pt")
"""


def growth(endpoint: str, size: int) -> int:
    """Bytes of memory that saving so many adds to a process that has them."""
    command = [sys.executable, "-c", GROWTH, endpoint, f"ais://{NATIVE}", str(size)]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


TRAINING_STEPS_PROGRAM = """
import json, statistics, sys, time, torch, forebay
from forebay_torch import Checkpoint
torch.set_num_threads(1)
checkpoint = Checkpoint(bucket_name=sys.argv[2], storage_client=forebay.Client(sys.argv[1]))
state = {str(i): torch.full((int(sys.argv[3]) // 64,), float(i)) for i in range(16)}
weight = torch.randn(384, 384)
def step():
    start = time.perf_counter()
    for _ in range(4):
        torch.mm(weight, weight)
    return time.perf_counter() - start
quiet, busy, copying = [], [], []
for turn in range(4):
    alone = [step() for _ in range(100)]
    start = time.perf_counter()
    saving = checkpoint.save_async(state, "step.pt")
    copied = time.perf_counter() - start
    beside = []
    while not saving.done():
        beside.append(step())
    saving.result()
    if turn > 0:  # the first turn warms caches
        quiet += alone; busy += beside; copying.append(copied)
checkpoint.remove("step.pt")
print(json.dumps({
    "quiet_s": statistics.median(quiet), "busy_s": statistics.median(busy),
    "quiet_mean_s": statistics.mean(quiet), "busy_mean_s": statistics.mean(busy),
    "steps": len(busy), "copying_s": statistics.median(copying),
}))
"""


def steps(endpoint: str, size: int) -> Row:
    """How long steps of training on one core take, and while so many bytes are saved beside them."""
    command = [sys.executable, "-c", TRAINING_STEPS_PROGRAM, endpoint, f"ais://{NATIVE}", str(size)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout))


@contextlib.contextmanager
def running(options: argparse.Namespace, folder: Path) -> Iterator[tuple[dict[str, Way], str]]:
    """All ways with their servers, and where ours is."""
    with contextlib.ExitStack() as stack:
        env, ways = {}, {}
        if options.minio:
            minio = stack.enter_context(peers.minio(options.minio, folder / "minio"))
            minio.make_bucket(BUCKET)
            url = f"http://{minio.address}"
            env = {"AWS_ACCESS_KEY_ID": MINIO_USER, "AWS_SECRET_ACCESS_KEY": MINIO_PASSWORD}
            env |= {"AWS_REGION": REGION, "AWS_ENDPOINT_URL": url}
            ways = {"s3fs": available(s3fs_way, url), "s3torchconnector": available(s3torch_way, url)}
        else:
            print("not measured: MinIO (--minio names no binary)", file=sys.stderr)
        before = dict(os.environ)
        os.environ |= env
        try:
            ours = stack.enter_context(peers.forebay(options.bin, folder / "forebay"))
        finally:
            os.environ.clear()
            os.environ |= before
        ours_work = (ours.pid, ours.gateway_pid)
        if options.minio:
            ways = {name: way and replace(way, servers=(minio.pid,)) for name, way in ways.items()}
            # The client of s3torchconnector took them from here.
            os.environ |= {key: value for key, value in env.items() if "URL" not in key}
            through = our_way(ours.endpoint, f"s3://{BUCKET}")
            ways[THROUGH] = replace(through, servers=(*ours_work, minio.pid))
        ours.make_bucket(NATIVE)
        ways[OURS] = replace(our_way(ours.endpoint, f"ais://{NATIVE}"), servers=ours_work)
        yield {name: way for name, way in ways.items() if way is not None}, ours.endpoint


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, help="the forebay binary")
    parser.add_argument("--minio", help="a minio binary; left out, only Forebay is measured")
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=int, default=2_500, help="MB of the largest state")
    parser.add_argument("--quick", action="store_true", help="one small state, one round")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    sizes: dict[int, tuple[float, float] | None] = dict(SIZES)
    most = options.most * MB
    if options.quick:
        sizes, most, options.rounds = {20 * MB: None}, 20 * MB, 1

    # Servers and their folders go also when this is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    result: Row = {"states": [], "not_run": [size for size in sizes if size > most]}
    with tempfile.TemporaryDirectory(dir=options.out) as name:
        folder = Path(name)
        with running(options, folder) as (ways, endpoint):
            for size, floors in sizes.items():
                if size > most:
                    print(f"\nnot run: {size / MB:,.0f} MB (--most is {most / MB:,.0f})")
                    continue
                rows = measure(size, ways, options.rounds, folder)
                show(rows, floors)
                result["states"] += rows
            result["steps"] = beside = steps(endpoint, min(298 * MB, most))
            ratios = [beside[f"busy{of}_s"] / beside[f"quiet{of}_s"] for of in ("", "_mean")]
            print(
                f"\n{beside['steps']} steps beside saves: {ratios[0]:.2f} x the median of quiet ones, "
                f"{ratios[1]:.2f} x their mean; copying first took {beside['copying_s']:.2f} s"
            )
            large = GROWTH_BYTES // 8 if most < 298 * MB else GROWTH_BYTES
            grown = growth(endpoint, large)
            result["growth"] = {"bytes": large, "grown": grown}
            print(f"\nmemory that saving {large / MIB:,.0f} MiB adds: {grown / MIB:,.0f} MiB")
    (options.out / "checkpoint.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
