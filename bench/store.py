"""Side by side with the peers that are installed: the store under HTTP load, at the owner.

    python bench/store.py --bin build/dist/forebay --load build/dist/forebay-load

Every server runs for the whole time and is loaded in turns, so that a machine that is busy for a
while is busy for all. Client and server share the machine's cores: beside each rate stands the CPU
time that the server spent on it. Only ratios mean something.

A guest whose host takes free memory back pays for every page that a write touches for the first time,
up to three times the write itself, in some rounds and not in others. So beside the medians stands the
ratio of the best rounds: nothing makes a server faster than it is.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import listings
import measurement
import peers
import sharding
from peers import Aistore, Forebay, Nginx, Server

KIB, MIB = 1 << 10, 1 << 20
Row = dict[str, Any]


@dataclass(frozen=True)
class Load:
    """One workload of the load generator."""

    name: str
    method: str
    bucket: str
    size: int
    count: int
    connections: int
    besides: tuple[str, ...] = ()
    """Servers other than Forebay that are loaded, by name."""

    @property
    def large(self) -> bool:
        return self.size >= MIB

    @property
    def warm_up(self) -> float:
        """Seconds of the first turn, which is not counted: caches are warm after it, and writers have written
        so much that from then on they write over what is there."""
        return 5 if self.method == "PUT" else 1


READERS = ("AIStore", "nginx", "MinIO", "bare axum")
ROOFS = {
    "checked copies": ["--way", "inline", "--crc", "--piece", "128", "--sndbuf", "128"],
    "bare sendfile": ["--way", "sendfile", "--piece", "1024", "--sndbuf", "128"],
}
"""Ways of the load generator's own server to send a large file."""
BY_S3 = ("Forebay by S3", "Forebay by S3, gateway", "MinIO")
LOADS = [
    Load("GET 1 KiB, 16 connections", "GET", "get-1k", KIB, 10_000, 16, READERS),
    Load("GET 1 MiB, 4 connections", "GET", "get-1m", MIB, 128, 4, READERS[:3]),
    Load("GET 64 MiB, 4 connections", "GET", "get-64m", 64 * MIB, 4, 4, (*READERS[:3], *ROOFS)),
    Load("S3 GET 64 KiB, 16 connections", "GET", "s3-64k", 64 * KIB, 2_000, 16, BY_S3),
    Load("S3 GET 8 MiB, 4 connections", "GET", "s3-8m", 8 * MIB, 32, 4, BY_S3),
    Load("PUT 1 KiB, cache, 16 clients", "PUT", "put-1k", KIB, 10**8, 16, ("AIStore", "MinIO")),
    Load(
        "PUT 16 KiB, owned, 32 clients", "PUT", "put-16k", 16 * KIB, 10**8, 32,
        ("AIStore", "AIStore fsync", "MinIO", "bare axum"),
    ),
]  # fmt: skip
PROPS = {"put-1k": {"class": "cache"}, "million": {"class": "cache"}}
FSYNC_PUT = str(1 << 4)
"""AIStore's feature flag by which it syncs a file before it answers."""


class Bench:
    """The servers and the load generator."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.servers: dict[str, Server] = {}

    def load(self, server: Server, load: Load, seconds: float | None, method: str = "") -> Row:
        """Runs the load generator once."""
        method = method or load.method
        path = server.get if method == "GET" else server.put
        assert path is not None
        bucket = f"{load.bucket}-sync" if server.name == "AIStore fsync" else load.bucket
        path = path.replace("{bucket}", bucket).replace("{name}", "o{}")
        command = [self.options.load, "run", "--to", server.address, "--method", method]
        command += ["--path", path, "--count", str(load.count)]
        for pid in (server.pid, *server.helpers):
            command += ["--pid", str(pid)]
        command += ["--connections", str(load.connections)]
        if method == "PUT":
            command += ["--body", str(load.size)]
            for header in server.headers:
                command += ["--header", header]
        else:
            command += ["--random"]
        if seconds is not None:
            command += ["--seconds", str(seconds)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        row: Row = json.loads(done.stdout)
        if row["errors"]:
            print(
                f"{server.name}, {load.name}: {row['errors']} errors, first: {row['first_error']}",
                file=sys.stderr,
            )
        return row

    def fill(self, server: Server, load: Load) -> None:
        """Writes what is to be read."""
        props = PROPS.get(load.bucket, {}) if isinstance(server, Forebay) else {}
        if server.name in BY_S3[:2]:
            return  # it has what Forebay has
        server.make_bucket(load.bucket, **props)
        if load.method == "PUT" or isinstance(server, Bare):
            return
        if isinstance(server, Nginx):
            server.write(load.bucket, load.count, load.size)
        else:
            self.load(server, load, None, "PUT")

    def measure(self, load: Load) -> list[Row]:
        """Loads the servers in turns."""
        servers = [s for n, s in self.servers.items() if n == "Forebay" or n in load.besides]
        for server in servers:
            if server.name != "AIStore fsync":
                self.fill(server, load)
        fsync = next((s for s in servers if s.name == "AIStore fsync"), None)
        if fsync is not None:
            fsync.make_bucket(f"{load.bucket}-sync", features=FSYNC_PUT)
        rounds: dict[str, list[Row]] = {s.name: [] for s in servers}
        # Rounds of a try are so short that their figures mean nothing, however long the first turn is.
        warm_up = min(load.warm_up, 8 * self.options.seconds)
        for turn in range(self.options.rounds + 1):
            # Every other turn backwards, so that nobody always follows the one that writes most.
            for server in servers if turn % 2 else servers[::-1]:
                # No disk has to write behind one what another one has left to it.
                os.sync()
                row = self.load(server, load, warm_up if turn == 0 else self.options.seconds)
                if turn > 0:
                    rounds[server.name].append(row)
        return [summary(load, name, rows) for name, rows in rounds.items()]


def summary(load: Load, name: str, rounds: list[Row]) -> Row:
    """Medians over the rounds, and how far these lie apart."""
    middle = {
        key: statistics.median(r[key] for r in rounds)
        for key in ("ops_per_s", "bytes_per_s", "p50_us", "p99_us")
    }
    rates = [r["ops_per_s"] for r in rounds]
    ops = max(sum(r["ops"] for r in rounds), 1)
    ticks = sum(r["server_ticks"] for r in rounds)
    return {
        "load": load.name,
        "server": name,
        **middle,
        "best_ops_per_s": max(rates),
        "spread": measurement.spread(rates),
        "server_us_per_op": ticks * 10_000 / ops,
        "server_ticks_per_gb": ticks / (max(sum(r["bytes"] for r in rounds), 1) / 1e9),
        "client_us_per_op": sum(r["client_ticks"] for r in rounds) * 10_000 / ops,
        "errors": sum(r["errors"] for r in rounds),
    }


def show(load: Load, rows: list[Row]) -> None:
    """One workload's table; ratios are Forebay's rate, and CPU time, to those of each."""
    print(f"\n{load.name}")
    unit = "GB/s" if load.large else "ops/s"
    cost = "ticks/GB" if load.large else "us/op"
    print(
        f"  {'':<16} {unit:>9} {'p50 us':>8} {'p99 us':>8} {'CPU ' + cost:>13}"
        f" {'client ' + cost:>15} {'spread':>7} {'Forebay is':>11} {'at best':>9} {'at CPU':>8}"
    )
    ours = rows[0]
    for row in rows:
        rate = f"{row['bytes_per_s'] / 1e9:.2f}" if load.large else f"{row['ops_per_s']:,.0f}"
        per = 100 / (load.size / 1e9) / 1e6 if load.large else 1
        ratio = ours["ops_per_s"] / max(row["ops_per_s"], 1e-9)
        best = ours["best_ops_per_s"] / max(row["best_ops_per_s"], 1e-9)
        spent = ours["server_us_per_op"] / max(row["server_us_per_op"], 1e-9)
        print(
            f"  {row['server']:<16} {rate:>9} {row['p50_us']:>8.0f} {row['p99_us']:>8.0f}"
            f" {row['server_us_per_op'] * per:>13.1f} {row['client_us_per_op'] * per:>15.1f}"
            f" {row['spread']:>7.2f} {ratio:>9.2f} x {best:>7.2f} x {spent:>6.2f} x"
        )
    sys.stdout.flush()


def sync_roof(folder: Path, seconds: float) -> float:
    """16 KiB records a second that the disk takes when 32 are written and synced at once."""
    batch, done = b"\xa5" * (32 * 16 * KIB), 0
    file = os.open(folder / "roof", os.O_CREAT | os.O_WRONLY)
    try:
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            os.pwrite(file, batch, done * len(batch))
            os.fdatasync(file)
            done += 1
        return done * 32 / (time.perf_counter() - start)
    finally:
        os.close(file)
        (folder / "roof").unlink()


def used(folder: Path) -> int:
    """Bytes of the disk's blocks under a folder, folders counted too."""
    # It fails where a file goes meanwhile (MinIO empties its trash), and counts the others.
    command = ["du", "-sB1", folder]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return int(done.stdout.split()[0])


def restart(server: Forebay, kill: bool, stack: contextlib.ExitStack) -> Row:
    """Stops the target and starts it with its own command line, for as long as `stack` lives;
    seconds until it serves."""
    assert server.folder is not None
    node = server.folder.parent
    os.kill(server.pid, 9 if kill else 15)
    port = int(server.address.rpartition(":")[2])
    peers.wait(lambda: not peers.listens(port) and gone(server.pid), "the end of the target")
    words = shlex.split((node / "cmd").read_text().strip().splitlines()[-1])
    words = words[1:] if words[0] == "exec" else words
    start = time.perf_counter()
    log = (node / "log").open("ab")
    child = subprocess.Popen(words, stdout=log, stderr=log)
    server.pid = child.pid
    stack.callback(child.wait)
    stack.callback(child.terminate)
    peers.wait(lambda: peers.answers(f"http://{server.address}/readyz"), "the target", child)
    path = server.get.replace("{bucket}", "million").replace("{name}", "o00000000")
    peers.wait(lambda: peers.answers(f"http://{server.address}{path}"), "the first GET", child)
    took = time.perf_counter() - start
    return {"after": "kill -9" if kill else "a clean stop", "seconds": took}


def gone(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    return True


def warmth(server: Forebay, count: int) -> Row:
    """Time of a request for the warmth of the bucket: median and slowest of 200."""
    url = f"{server.endpoint}/api/v1/warmth/million?provider=ais"
    times = []
    for _ in range(200):
        start = time.perf_counter()
        answer = json.loads(peers.call("GET", url))
        times.append(time.perf_counter() - start)
    objects = answer["buckets"][0]["objects"]
    if objects != count:
        raise RuntimeError(f"the warmth has {objects} objects of {count}")
    median, slowest = statistics.median(times), max(times)
    return {"objects": objects, "median_ms": median * 1e3, "max_ms": slowest * 1e3}


def million(bench: Bench) -> Row:
    """Many small objects: how fast they come, what they take, how they are listed, restart."""
    count = bench.options.objects
    result: Row = {"objects": count, "disk": []}
    for server in bench.servers.values():
        have = listings.share(server, count)
        if not have:
            continue
        load = Load("fill", "PUT", "million", KIB, have, 32)
        assert server.folder is not None
        bench.fill(server, load)
        os.sync()
        before = used(server.folder)
        row = bench.load(server, load, None)
        os.sync()
        taken = used(server.folder) - before
        result["disk"].append(
            {"server": server.name, "bytes_per_payload": taken / (have * KIB),
             "puts_per_s": row["ops_per_s"], "resident": row["server_resident"]}
        )  # fmt: skip
    result["listing"] = listings.measure(list(bench.servers.values()), count, bench.options.rounds)
    server = bench.servers["Forebay"]
    assert isinstance(server, Forebay)
    result["warmth"] = warmth(server, count)
    options = bench.options
    servers = list(bench.servers.values())
    result["ishard"] = sharding.measure(servers, count, options.bin, options.ishard)
    with contextlib.ExitStack() as stack:
        result["restart"] = [restart(server, kill, stack) for kill in (False, True)]
    return result


def show_million(result: Row) -> None:
    print(f"\n{result['objects']:,} objects of 1 KiB (AIStore: a tenth, MinIO: a fiftieth)")
    for row in result["disk"]:
        print(
            f"  {row['server']:<12} disk {row['bytes_per_payload']:.2f} x payload,"
            f" written at {row['puts_per_s']:,.0f}/s, resident {row['resident'] / MIB:,.0f} MiB"
        )
    listings.show(result["listing"])
    sharding.show(result["ishard"])
    asked = result["warmth"]
    print(f"  warmth in {asked['median_ms']:.2f} ms, at most {asked['max_ms']:.2f} ms")
    for row in result["restart"]:
        print(f"  serving {row['seconds']:.2f} s after {row['after']}")
    sys.stdout.flush()


def start(bench: Bench, stack: contextlib.ExitStack, folder: Path) -> None:
    """Starts every server that is installed; says which are not."""
    options = bench.options
    size = f"{options.size}GiB"
    ours = stack.enter_context(peers.forebay(options.bin, folder / "forebay", 1, "--size", size))
    bench.servers["Forebay"] = ours
    bench.servers.update((server.name, server) for server in ours.by_s3())
    if options.aisnode:
        ais = stack.enter_context(peers.aistore(options.aisnode, folder / "aistore"))
        bench.servers["AIStore"] = ais
        twin = Aistore("AIStore fsync", ais.address, ais.pid, ais.get, ais.put)
        twin.endpoint = ais.endpoint
        bench.servers["AIStore fsync"] = twin
    else:
        print("not measured: AIStore (set AISNODE to an aisnode binary)", file=sys.stderr)
    if program := peers.found("nginx") or peers.found("/usr/sbin/nginx"):
        bench.servers["nginx"] = stack.enter_context(peers.nginx(program, folder / "nginx"))
    else:
        print("not measured: nginx is not installed", file=sys.stderr)
    if options.minio:
        bench.servers["MinIO"] = stack.enter_context(peers.minio(options.minio, folder / "minio"))
    else:
        print("not measured: MinIO is not there", file=sys.stderr)
    file = folder / "1k"
    file.write_bytes(os.urandom(KIB))
    axum = bare(options.load, "bare axum", "bare", file, "--log", str(folder / "log"))
    bench.servers["bare axum"] = stack.enter_context(axum)
    file = folder / "64m"
    file.write_bytes(os.urandom(64 * MIB))
    for name, way in ROOFS.items():
        roof = bare(options.load, name, "large", file, *way)
        bench.servers[name] = stack.enter_context(roof)


@contextlib.contextmanager
def bare(program: str, name: str, command: str, file: Path, *more: str) -> Iterator[Server]:
    """A server of the load generator that does nothing but send one file, or sync what it gets."""
    port = peers.free_port(1)
    words = [program, command, "--port", str(port), "--file", str(file), *more]
    with peers.process(words, lambda: peers.listens(port)) as child:
        path = "/{bucket}/{name}"
        yield Bare(name, f"127.0.0.1:{port}", child.pid, path, path)


class Bare(Server):
    """A server with one object, a log for writes, and no buckets."""

    def make_bucket(self, name: str, **props: object) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, help="the forebay binary")
    parser.add_argument("--load", required=True, help="the forebay-load binary")
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    parser.add_argument("--minio", help="a minio binary; left out, MinIO is not measured")
    parser.add_argument("--aisnode", default=os.environ.get("AISNODE"), help="an aisnode binary")
    parser.add_argument(
        "--ishard", default=os.environ.get("ISHARD"), help="AIStore's ishard binary"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3, help="of one round of one server")
    parser.add_argument("--objects", type=int, default=1_000_000, help="0: no large bucket")
    parser.add_argument("--size", type=int, default=20, help="GiB of disk for Forebay")
    parser.add_argument("--only", default="", help="loads whose name contains this, or million")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    # Servers and their folders go also when this is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    bench, rows = Bench(options), []
    result: Row = {"loads": rows}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.out)))
        start(bench, stack, folder)
        for load in LOADS:
            if options.only in load.name:
                rows += (measured := bench.measure(load))
                show(load, measured)
        if options.only in LOADS[-1].name:
            result["sync_roof_per_s"] = sync_roof(folder, options.seconds)
            print(f"  roof: {result['sync_roof_per_s']:,.0f}/s in synced batches of 32")
        if options.objects and options.only in "million":
            result["million"] = million(bench)
            show_million(result["million"])
    (options.out / "store.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
