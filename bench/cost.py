"""The cost of users and TLS: CPU time of the servers per request, in interleaved pairs.

    python bench/cost.py --bin build/dist/forebay --load build/dist/forebay-load [--part users]

All servers of a row run for its whole time and are loaded one right after the other, each turn in the
opposite order of the last: a machine that is busy for a while is busy for all. A ratio is that of two
runs of one turn. The CPU time is that of all nodes of a cluster, by /proc/PID/stat.

The generator offers TLS 1.3 with one cipher suite, and nginx has the certificate and key of the target,
so both sides do the same work.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import peers
from batch import TICK_S, cpu_s
from peers import Forebay

KIB, MIB = 1 << 10, 1 << 20
ENTRIES = {KIB: 5_000, 128 * KIB: 1_000}
"""Objects of a batch, by their size."""
SMALL, LARGE = ("get-1k", 5_000, KIB), ("get-1m", 128, MIB)
"""Bucket, objects and size of what is read one by one."""
USERS = '[auth]\nadmin = "root"\nadmin_password_file = "{}"\n'
BOTH_SCHEMES = "[tls]\nhttp = true\n"
NGINX_TLS = """
    ssl_certificate {cert}; ssl_certificate_key {key};
    ssl_protocols TLSv1.3; ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;
"""


@dataclass(frozen=True)
class Cost:
    """A run of requests."""

    requests: int
    bytes: int
    seconds: float
    cpu_s: float

    @property
    def us(self) -> float:
        """Microseconds of the servers' CPU time per request."""
        return self.cpu_s / self.requests * 1e6

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds


@dataclass(frozen=True)
class Way:
    """One way to send the requests of a row."""

    name: str
    run: Callable[[float], Cost]


@dataclass(frozen=True)
class Row:
    """Ways that are compared with the first one, and what is to be reached."""

    name: str
    base: Way
    ways: list[Way]
    goal: str
    """`cpu`: at most this ratio of CPU time per request; `per cpu`: at least this many requests for the
    CPU time of the base's one; `rate`: at least this ratio of requests a second."""
    bound: float


@dataclass
class Bench:
    """The programs, and the folder of what they need."""

    options: argparse.Namespace
    folder: Path
    stack: contextlib.ExitStack
    clusters: dict[str, Forebay] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)

    def cluster(self, name: str, targets: int, settings: str, *more: str) -> Forebay:
        """Starts a cluster once. `settings` are those of all its nodes."""
        if name not in self.clusters:
            config = self.folder / f"{name}.toml"
            config.write_text(settings)
            more = ("--config", str(config), *more)
            started = peers.forebay(self.options.bin, self.folder / name, targets, *more)
            server = self.clusters[name] = self.stack.enter_context(started)
            self.tokens[name] = server.description.get("token", "")
        return self.clusters[name]

    def forebay(self, name: str, *words: str) -> str:
        """Runs a command of a cluster's administrator."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "FOREBAY_ENDPOINT": self.clusters[name].endpoint,
            "FOREBAY_TOKEN": self.tokens[name],
        }
        command = [self.options.bin, *words]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout.strip()

    def files(self, bucket: str, count: int, size: int) -> Path:
        """A folder with the objects of a bucket."""
        folder = self.folder / "files" / bucket
        if not folder.exists():
            folder.mkdir(parents=True)
            content = random.Random(bucket).randbytes(size)
            for number in range(count):
                (folder / f"o{number:08d}").write_bytes(content)
        return folder

    def fill(self, name: str, bucket: str, count: int, size: int) -> None:
        """Writes what is to be read."""
        self.forebay(name, "mb", f"ais://{bucket}")
        folder = self.files(bucket, count, size)
        self.forebay(name, "-q", "put", "-r", str(folder), f"ais://{bucket}")
        self.clusters[name].look_up(self.tokens[name])

    def way(
        self, name: str, to: str, pids: list[int], path: str, size: int, *more: str, headers: list[str] = ()
    ) -> Way:
        """Requests of the load generator; each answer has at least `size` bytes."""
        command = [self.options.load, "run", "--to", to, "--path", path, *more]
        for pid in pids:
            command += ["--pid", str(pid)]
        for header in headers:
            command += ["--header", header]

        def run(seconds: float) -> Cost:
            words = [*command, "--seconds", str(seconds)]
            done = subprocess.run(words, stdout=subprocess.PIPE, check=True)
            row = json.loads(done.stdout)
            if row["errors"] or not row["ops"] or row["bytes"] < row["ops"] * size:
                sys.exit(f"error: {name}: {row}")
            return Cost(row["ops"], row["bytes"], row["seconds"], row["server_ticks"] * TICK_S)

        return Way(name, run)


def nodes(server: Forebay) -> list[dict[str, Any]]:
    """Gateways and targets of a cluster."""
    return server.description["gateways"] + server.description["targets"]


def pids_of(server: Forebay) -> list[int]:
    return [node["pid"] for node in nodes(server)]


def small_reads(bench: Bench) -> list[Row]:
    """GET of small objects: without users, with a token, and as our own client sends them."""
    bucket, count, size = SMALL
    password = bench.folder / "password"
    password.write_text("cost-of-users")
    password.chmod(0o600)
    for name, settings in (("open", ""), ("users", USERS.format(password))):
        bench.cluster(name, 1, settings)
        bench.fill(name, *SMALL)
    bench.forebay("users", "auth", "user", "add", "reader", "--role", "reader",
                  "--password-file", str(password))  # fmt: skip
    token = bench.forebay("users", "auth", "token", "create", "--user", "reader")
    bench.clusters["users"].look_up(token)
    path = f"/v1/objects/{bucket}/o{{}}"
    by_token = [f"authorization: Bearer {token}"]

    def way(name: str, cluster: str, headers: list[str], gateway: bool = False) -> Way:
        server = bench.clusters[cluster]
        more = ["--count", str(count), "--random", *(["--follow"] if gateway else [])]
        to = server.front if gateway else server.address
        return bench.way(name, to, pids_of(server), path, size, *more, headers=headers)

    grants = {name: ["user-agent: forebay/0", *server.headers] for name, server in bench.clusters.items()}
    ours = [
        way("grant", "users", grants["users"]),
        way("grant and token, as our client", "users", grants["users"] + by_token),
    ]
    gateway = [
        way("token", "users", by_token, gateway=True),
        way("grant", "users", grants["users"], gateway=True),
    ]
    return [
        Row("GET 1 KiB at the owner", way("no users", "open", []), [way("token", "users", by_token)], "cpu", 1.03),
        Row("GET 1 KiB of our client", way("no users: grant", "open", grants["open"]), ours, "cpu", 1.03),
        Row("GET 1 KiB, redirected by a gateway", way("no users", "open", [], gateway=True), gateway, "cpu", 1.03),
    ]  # fmt: skip


def large_reads(bench: Bench) -> list[Row]:
    """GET over HTTPS beside nginx with the same certificate."""
    bucket, count, size = LARGE
    program = bench.options.nginx
    if not program:
        print("not measured: nginx is not installed", file=sys.stderr)
        return []
    server = bench.cluster("https", 1, BOTH_SCHEMES, "--tls")
    bench.fill("https", *LARGE)
    tls = bench.folder / "https" / "tls"
    directives = NGINX_TLS.format(cert=tls / "target01.pem", key=tls / "target01-key.pem")
    peer = bench.stack.enter_context(
        peers.nginx(program, bench.folder / "nginx", directives + bench.options.nginx_more)
    )
    assert peer.folder is not None
    (peer.folder / bucket).symlink_to(bench.files(*LARGE))
    more = ["--count", str(count), "--random", "--connections", "4", "--ca", str(tls / "ca.pem")]
    path = f"/{bucket}/o{{}}"
    base = bench.way("nginx", peer.address, [peer.pid], path, size, *more)
    ours = bench.way(
        "Forebay", server.address, pids_of(server), f"/v1/objects{path}", size, *more
    )
    return [Row("HTTPS GET 1 MiB", base, [ours], "per cpu", 1.0)]


def batches(bench: Bench) -> list[Row]:
    """GetBatch at one of three targets, without and with TLS between the nodes."""
    servers = {
        "plain nodes": bench.cluster("plain3", 3, ""),
        "TLS between nodes": bench.cluster("tls3", 3, BOTH_SCHEMES, "--tls"),
    }
    rows = []
    for size, count in ENTRIES.items():
        bucket = f"batch-{size // KIB}k"
        for cluster in ("plain3", "tls3"):
            bench.fill(cluster, bucket, count, size)
        names = [f"o{number:08d}" for number in range(count)]
        random.Random(bucket).shuffle(names)
        body = bench.folder / f"{bucket}.json"
        request = {"in": [{"objname": name} for name in names], "mime": ".tar", "strm": True}
        body.write_text(json.dumps(request))
        more = ["--body-file", str(body), "--connections", "2"]
        path = f"/v1/ml/moss/{bucket}"
        ways = [
            bench.way(name, server.address, pids_of(server), path, count * size, *more)
            for name, server in servers.items()
        ]
        title = f"GetBatch of {count:,} objects of {size // KIB} KiB"
        rows.append(Row(title, ways[0], ways[1:], "rate", 0.95))
        if importlib.util.find_spec("aistore"):
            ways = [by_sdk(name, server, bucket, names, size) for name, server in servers.items()]
            rows.append(Row(f"{title}, AIStore's client", ways[0], ways[1:], "rate", 0.95))
    return rows


def by_sdk(name: str, server: Forebay, bucket: str, names: list[str], size: int) -> Way:
    """Batches of AIStore's client, contents as `bytes` that nobody keeps."""

    def run(seconds: float) -> Cost:
        from aistore.sdk import Client

        client = Client(server.endpoint)
        before, requests = sum(map(cpu_s, pids_of(server))), 0
        start = time.perf_counter()
        while time.perf_counter() < start + seconds:
            batch = client.batch(names, client.bucket(bucket))
            read = sum(len(content) for _, content in batch.get())
            if read != len(names) * size:
                sys.exit(f"error: {name}: {read} bytes of a batch")
            requests += 1
        took = time.perf_counter() - start
        spent = sum(map(cpu_s, pids_of(server))) - before
        return Cost(requests, requests * len(names) * size, took, spent)

    return Way(name, run)


PARTS = {"users": small_reads, "https": large_reads, "batches": batches}


def measure(row: Row, pairs: int, seconds: float) -> Iterator[dict[str, Any]]:
    """Runs all ways in turns; the first run of each does not count."""
    everyone = [row.base, *row.ways]
    costs: dict[str, list[Cost]] = {way.name: [] for way in everyone}
    for turn in range(pairs + 1):
        for way in everyone if turn % 2 else everyone[::-1]:
            cost = way.run(seconds if turn else min(seconds, 1.0))
            if turn:
                costs[way.name].append(cost)
    base = costs[row.base.name]
    for way in row.ways:
        mine = costs[way.name]
        cpu = spread([m.us / b.us for m, b in zip(mine, base, strict=True)])
        rate = spread([m.rate / b.rate for m, b in zip(mine, base, strict=True)])
        per_cpu = spread([b.us / m.us for m, b in zip(mine, base, strict=True)])
        found = {"cpu": cpu, "rate": rate, "per cpu": per_cpu}
        middle = found[row.goal]["median"]
        reached = middle <= row.bound if row.goal == "cpu" else middle >= row.bound
        yield {
            "row": row.name, "base": row.base.name, "way": way.name, "pairs": pairs, "seconds": seconds,
            "goal": row.goal, "bound": row.bound, "reached": reached, **found,
            **{f"{key}_us": statistics.median(c.us for c in costs) for key, costs in (("base", base), ("way", mine))},
            **{f"{key}_per_s": statistics.median(c.rate for c in costs) for key, costs in (("base", base), ("way", mine))},
        }  # fmt: skip


def spread(ratios: list[float]) -> dict[str, float]:
    """Median, quartiles, least and most of some ratios."""
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return {"median": middle, "low": low, "high": high, "least": min(ratios), "most": max(ratios)}


def show(found: dict[str, Any]) -> None:
    print(f"{found['row']}: {found['way']} / {found['base']}")
    print(
        f"  CPU per request {found['way_us']:,.1f} / {found['base_us']:,.1f} us,"
        f" requests {found['way_per_s']:,.1f} / {found['base_per_s']:,.1f} per s"
    )
    for key in ("cpu", "rate", "per cpu"):
        ratio = found[key]
        goal = ""
        if key == found["goal"]:
            sign = "<=" if key == "cpu" else ">="
            goal = f"  goal {sign} {found['bound']}{'' if found['reached'] else ': MISSED'}"
        print(
            f"  {key:<8} {ratio['median']:.3f}  ({ratio['low']:.3f} to {ratio['high']:.3f},"
            f" {ratio['least']:.3f} to {ratio['most']:.3f}){goal}"
        )
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, help="the forebay binary")
    parser.add_argument("--load", required=True, help="the forebay-load binary")
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    found = peers.found("nginx") or peers.found("/usr/sbin/nginx")
    parser.add_argument("--nginx", default=found, help="the nginx binary")
    parser.add_argument("--nginx-more", default="", help="more directives of nginx's server")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=2, help="of one run")
    parser.add_argument("--part", choices=PARTS, action="append", help="only this part; may be repeated")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    options.bin, options.load = (str(Path(p).absolute()) for p in (options.bin, options.load))

    # Servers and their folders go also when this is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    results = []
    for part in options.part or PARTS:
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(dir=options.out))
            for row in PARTS[part](Bench(options, Path(folder).absolute(), stack)):
                for found in measure(row, options.pairs, options.seconds):
                    show(found)
                    results.append(found)
    (options.out / "cost.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
