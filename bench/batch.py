"""Side by side with the peers that are installed: batches of objects and of shard members.

    python bench/batch.py --bin build/dist/forebay --aisnode AISNODE

Forebay and AIStore, one target each, get the same objects and are read in turns, by AIStore's own
client on both and by ours on Forebay. In the same turns the roofs are measured (`roofs.py`): AIStore's
client on an answer that is ready, and a server that does nothing but one `pread` for each item. Beside
each rate stands the CPU time that the server and the client spent on an item: they share the
machine's cores. Only ratios mean something.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import io
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import measurement
import peers
import roofs
from feeding.data import put_all
from peers import Server

KIB, MIB = 1 << 10, 1 << 20
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
Row = dict[str, Any]
Way = Callable[[list[str]], tuple[int, int]]
"""Reads items by their names; how many and how many bytes came."""
OURS, THEIRS = "our client on Forebay", "AIStore's client on "
BARE, READY = "roof: a pread each, to bytes", "roof: AIStore's client, ready TAR"


@dataclass(frozen=True)
class Load:
    """`count` items of `size` bytes, read by one batch in shuffled order."""

    name: str
    count: int
    size: int
    shard: int = 0
    """Members of the shard that the items are in; 0: they are objects."""


LOADS = [
    Load("batch of 5,000 objects of 1 KiB", 5000, KIB),
    Load("batch of 1,000 members of 10 KiB of a shard of 50 MB", 1000, 10 * KIB, 4900),
    Load("batch of 1,000 objects of 128 KiB", 1000, 128 * KIB),
]
AS_BYTES_MAX_BYTES = 4 * KIB
"""Items up to this size are asked for as `bytes` objects."""
CONCURRENT_BATCHES, LONG_BATCH_OBJECTS = 32, 10_000
"""Batches at a time, and entries of each, under which the target's memory is looked at."""


def cpu_s(pid: int) -> float:
    """CPU time that a process has used, its ended children counted too."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) * TICK_S


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def bucket_of(load: Load) -> str:
    return f"batch-{load.size // KIB}k{'-shard' if load.shard else ''}"


def names_of(load: Load) -> list[str]:
    """All items: of objects, or of members."""
    return [f"{'m' if load.shard else 'o'}/{n:06}.bin" for n in range(load.shard or load.count)]


def fill(server: Server, load: Load) -> None:
    """Writes what is to be read, by plain PUTs."""
    server.make_bucket(bucket_of(load))
    content = random.Random(load.name).randbytes(load.size)
    if load.shard:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for name in names_of(load):
                member = tarfile.TarInfo(name)
                member.size = load.size
                archive.addfile(member, io.BytesIO(content))
        put_all(server, bucket_of(load), [("s.tar", out.getvalue())])
    else:
        put_all(server, bucket_of(load), ((name, content) for name in names_of(load)))


def shuffled(load: Load) -> list[str]:
    names = names_of(load)
    random.shuffle(names)
    return names[: load.count]


def check(load: Load, read: tuple[int, int]) -> None:
    if read != (load.count, load.count * load.size):
        sys.exit(f"error: {load.name}: {read[0]} items of {read[1]} bytes came")


def theirs(endpoint: str, load: Load) -> Way:
    """AIStore's client: one streamed GetBatch, contents as `bytes` that nobody keeps."""
    from aistore.sdk import Client

    client = Client(endpoint)
    bucket = client.bucket(bucket_of(load))

    def read(names: list[str]) -> tuple[int, int]:
        batch = client.batch(bucket=bucket)
        shard = bucket.object("s.tar")
        for name in names:
            if load.shard:
                batch.add(shard, archpath=name)
            else:
                batch.add(name)
        sizes = [len(content) for _, content in batch.get()]
        return len(sizes), sum(sizes)

    return read


def ours(server: Server, load: Load) -> Way:
    """Our client: small objects as `bytes` of one call; others as they come, as AIStore's does."""
    import forebay

    client = forebay.Client(server.endpoint)
    bucket = client.bucket(bucket_of(load))

    def read(names: list[str]) -> tuple[int, int]:
        if load.size <= AS_BYTES_MAX_BYTES:
            sizes = list(map(len, bucket.get_many(names, as_bytes=True)))
            return len(sizes), sum(sizes)
        batch = client.batch(bucket=bucket)
        shard = bucket.object("s.tar")
        for name in names:
            if load.shard:
                batch.add(shard, archpath=name)
            else:
                batch.add(name)
        sizes = [len(content) for _, content in batch.get()]
        return len(sizes), sum(sizes)

    return read


def index_shard(server: Server, load: Load) -> None:
    """AIStore's own job that makes an index of a shard; ours does it by itself."""
    url = f"{server.endpoint}/v1/buckets/{bucket_of(load)}"
    value = {"action": "index-shard", "value": {}}
    print(f"  AIStore indexes its shard: {peers.call('POST', url, value).decode().strip()}")
    time.sleep(5)


def measure(
    load: Load, servers: dict[str, Server], rounds: int, slow: bool, folder: Path
) -> list[Row]:
    """All readers in turns; AIStore's shards once before its index and once after."""
    ways: dict[str, tuple[int, Way]] = {}
    times: dict[str, list[Row]] = {}
    with contextlib.ExitStack() as stack:
        for name, server in servers.items():
            fill(server, load)
            ways[THEIRS + name] = (server.pid, theirs(server.endpoint, load))
        ways[OURS] = (servers["Forebay"].pid, ours(servers["Forebay"], load))
        pid, endpoint = stack.enter_context(roofs.ready(folder, shuffled(load), load.size))
        ways[READY] = (pid, theirs(endpoint, load))
        pid, read = stack.enter_context(roofs.bare(folder, load.count, load.size))
        ways[BARE] = (pid, lambda _: read())
        if load.shard and "AIStore" in servers:
            on_theirs = ways[THEIRS + "AIStore"]
            if slow:
                times[f"{THEIRS}AIStore, no index"] = [timed(load, *on_theirs)]
            with contextlib.suppress(OSError):
                index_shard(servers["AIStore"], load)
        for turn in range(rounds + 1):
            for name, (pid, way) in ways.items():
                row = timed(load, pid, way)
                if turn > 0:  # the first turn warms caches
                    times.setdefault(name, []).append(row)
    return [
        {"load": load.name, "reader": name}
        | {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        | {"spread": measurement.spread([r["items_per_s"] for r in rows])}
        for name, rows in times.items()
    ]


def timed(load: Load, pid: int, way: Way) -> Row:
    """One reading; `pid` is the server's."""
    names = shuffled(load)
    before, mine = cpu_s(pid), time.process_time()
    start = time.perf_counter()
    read = way(names)
    took = time.perf_counter() - start
    check(load, read)
    return {
        "items_per_s": load.count / took,
        "bytes_per_s": load.count * load.size / took,
        "server_us": (cpu_s(pid) - before) * 1e6 / load.count,
        "client_us": (time.process_time() - mine) * 1e6 / load.count,
    }


def show(load: Load, rows: list[Row], roof: float) -> None:
    print(f"\n{load.name}")
    print(
        f"  {'':<38} {'items/s':>10} {'MB/s':>7} {'server us':>10} {'client us':>10}"
        f" {'spread':>7} {'ours is':>9}"
    )
    rates = {row["reader"]: row["items_per_s"] for row in rows}
    best = next(row for row in rows if row["reader"] == OURS)
    for row in rows:
        ratio = best["items_per_s"] / row["items_per_s"]
        print(
            f"  {row['reader']:<38} {row['items_per_s']:>10,.0f} {row['bytes_per_s'] / 1e6:>7,.0f}"
            f" {row['server_us']:>10.1f} {row['client_us']:>10.1f} {row['spread']:>7.2f}"
            f" {ratio:>7.1f} x"
        )
    share = rates[f"{THEIRS}Forebay"] / rates[READY]
    print(f"  AIStore's client on Forebay is at {share:.0%} of its roof")
    made = roofs.made(load.count, load.size)
    print(
        f"  our client is at {rates[OURS] / rates[BARE]:.0%} of its roof;"
        f" bytes are made at {made:,.0f}/s"
    )
    if load.size >= 64 * KIB:
        share = best["bytes_per_s"] / roof
        print(f"  loopback copies {roof / 1e6:,.0f} MB/s: our client is at {share:.0%} of it")
    sys.stdout.flush()


def long_request(bucket: str, names: list[str]) -> bytes:
    entries = [{"bucket": 0, "name": name} for name in names]
    buckets = [{"name": bucket, "provider": "ais"}]
    return json.dumps({"buckets": buckets, "entries": entries, "ordered": True}).encode()


def first_byte(server: Server, bucket: str, names: list[str], rounds: int) -> list[float]:
    """Seconds from a request of many entries to the first payload, warm; one for each round."""
    body = long_request(bucket, names)
    headers = dict(line.split(": ", 1) for line in server.headers)
    headers["Content-Type"] = "application/json"
    times = []
    for _ in range(rounds + 1):
        to = http.client.HTTPConnection(server.address)
        to.connect()
        start = time.perf_counter()
        to.request("POST", "/api/v1/batch", body, headers)
        answer = to.getresponse()
        head = answer.read(16 + 8 + 24 + 1)
        times.append(time.perf_counter() - start)
        if answer.status != 200 or head[:4] != b"FBBS":
            sys.exit(f"error: a batch of {len(names)}: {answer.status} {head!r}")
        answer.read()
        to.close()
    return times[1:]


READER = """
import sys, http.client
address, path, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
body = open(path, "rb").read()
open_ones = []
for _ in range(count):
    to = http.client.HTTPConnection(address, timeout=300)
    headers = dict(line.split(": ", 1) for line in sys.argv[4:])
    to.request("POST", "/api/v1/batch", body, headers | {"Content-Type": "application/json"})
    open_ones.append(to.getresponse())
total = 0
while open_ones:
    for answer in list(open_ones):
        piece = answer.read(1 << 16)
        total += len(piece)
        if not piece:
            open_ones.remove(answer)
print(total)
"""


def crowd(server: Server, bucket: str, names: list[str], folder: Path) -> Row:
    """The most memory that the target has while many long batches are read slowly, side by side."""
    body = folder / "request"
    body.write_bytes(long_request(bucket, names))
    before = most = resident(server.pid)
    command = [sys.executable, "-c", READER, server.address, str(body), str(CONCURRENT_BATCHES), *server.headers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        while reader.poll() is None:
            most = max(most, resident(server.pid))
            time.sleep(0.01)
        out = reader.stdout.read() if reader.stdout else ""
    if reader.returncode or int(out) < CONCURRENT_BATCHES * len(names) * KIB:
        sys.exit(f"error: {CONCURRENT_BATCHES} batches ended early: {out}")
    return {"batches": CONCURRENT_BATCHES, "entries": len(names), "before": before, "most": most}


def long_batches(server: Server, rounds: int, folder: Path) -> Row:
    """Measures long batches of Forebay's own stream, which no peer has."""
    load = Load("long", LONG_BATCH_OBJECTS, 16 * KIB)
    fill(server, load)
    names = names_of(load)
    random.shuffle(names)
    times = first_byte(server, bucket_of(load), names, rounds)
    return {
        "first_byte_s": statistics.median(times),
        "first_byte_worst_s": max(times),
        "memory": crowd(server, bucket_of(load), names, folder),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, help="the forebay binary")
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    parser.add_argument("--aisnode", default=os.environ.get("AISNODE"), help="an aisnode binary")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="loads whose name contains this, or long")
    parser.add_argument("--quick", action="store_true", help="leave AIStore's unindexed shard out")
    options, _ = parser.parse_known_args()
    options.out.mkdir(parents=True, exist_ok=True)

    # Servers and their folders go also when this is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    result: Row = {"loads": [], "loopback_bytes_per_s": roofs.loopback()}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.out)))
        servers: dict[str, Server] = {
            "Forebay": stack.enter_context(peers.forebay(options.bin, folder / "forebay"))
        }
        loads = [load for load in LOADS if options.only in load.name]
        # Long batches are a stream that only Forebay has.
        if loads and options.aisnode:
            ais = peers.aistore(options.aisnode, folder / "aistore")
            servers["AIStore"] = stack.enter_context(ais)
        elif loads:
            print("not measured: AIStore (set AISNODE to an aisnode binary)", file=sys.stderr)
        for load in loads:
            rows = measure(load, servers, options.rounds, not options.quick, folder)
            show(load, rows, result["loopback_bytes_per_s"])
            result["loads"] += rows
        if options.only in "long":
            result["long"] = long = long_batches(servers["Forebay"], options.rounds, folder)
            memory = long["memory"]
            print(
                f"\nfirst byte of a batch of {LONG_BATCH_OBJECTS:,}: {long['first_byte_s'] * 1e3:.1f} ms,"
                f" worst {long['first_byte_worst_s'] * 1e3:.1f} ms"
                f"\nmemory of the target during {CONCURRENT_BATCHES} batches of {LONG_BATCH_OBJECTS:,} objects of 16 KiB:"
                f" {memory['most'] / MIB:,.0f} MiB (before: {memory['before'] / MIB:,.0f})"
            )
    (options.out / "batch.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
