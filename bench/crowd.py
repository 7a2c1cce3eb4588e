"""Measures how idle clients slow down an active one: its latency with and without such a crowd.

    python bench/crowd.py --bin build/dist/forebay

A crowd is 2,000 idle connections, 300 bodies of which the rest does not come, and 300 readers that
never read, most of them of batches. In turns without and with it, one client reads small objects, one
request at a time. Only the ratio of both 99th percentiles means something.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import random
import resource
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import peers

KIB, MIB = 1 << 10, 1 << 20
BUCKET = "crowd"
IDLE, BODIES, READERS = 2000, 300, 300
OBJECTS, SIZE = 200, 4 * KIB


def fill(server: peers.Forebay) -> None:
    server.make_bucket(BUCKET)
    for n in range(OBJECTS):
        put(server, f"o{n}", random.randbytes(SIZE))
    put(server, "large", random.randbytes(16 * MIB))


def put(server: peers.Forebay, name: str, data: bytes) -> None:
    link = http.client.HTTPConnection(server.address, timeout=60)
    link.request("PUT", f"/v1/objects/{BUCKET}/{name}", data, headers_of(server))
    answer = link.getresponse()
    answer.read()
    if answer.status != 200:
        raise SystemExit(f"PUT of {name}: {answer.status}")


def headers_of(server: peers.Forebay) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in server.headers)


@contextlib.contextmanager
def crowd(server: peers.Forebay) -> Iterator[None]:
    """Holds all connections of a crowd."""
    host, _, port = server.address.rpartition(":")
    lines = "".join(f"{line}\r\n" for line in ["host: localhost", *server.headers])
    entries = [{"bucket": 0, "name": "large"}] * 20
    whole = json.dumps({"buckets": [{"name": BUCKET}], "entries": entries}).encode()
    post = f"POST /api/v1/batch HTTP/1.1\r\n{lines}content-length: {len(whole)}\r\n\r\n"
    upload = f"PUT /v1/objects/{BUCKET}/never HTTP/1.1\r\n{lines}"
    upload += "content-length: 500000\r\n\r\nx"
    read = f"GET /v1/objects/{BUCKET}/large HTTP/1.1\r\n{lines}\r\n"
    halves = [post.encode() + whole[:5], upload.encode()]
    requests = [post.encode() + whole] * 9 + [read.encode()]
    sent = [b""] * IDLE + [halves[n % 2] for n in range(BODIES)]
    sent += [requests[n % 10] for n in range(READERS)]
    with contextlib.ExitStack() as held:
        for request in sent:
            link = held.enter_context(socket.create_connection((host, int(port)), timeout=30))
            link.sendall(request)
        yield


def latencies(server: peers.Forebay, seconds: float) -> list[float]:
    """Of reads of small objects, one after the other on one connection, in s."""
    link = http.client.HTTPConnection(server.address, timeout=30)
    taken, end = [], time.perf_counter() + seconds
    while (started := time.perf_counter()) < end:
        name = f"o{random.randrange(OBJECTS)}"
        link.request("GET", f"/v1/objects/{BUCKET}/{name}", headers=headers_of(server))
        answer = link.getresponse()
        if answer.status != 200 or len(answer.read()) != SIZE:
            raise SystemExit(f"GET of {name}: {answer.status}")
        taken.append(time.perf_counter() - started)
    return taken


def p99(taken: list[float]) -> float:
    return statistics.quantiles(taken, n=100)[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, help="the program forebay")
    parser.add_argument("--out", type=Path, help="folder for crowd.json")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement")
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    rounds = []
    with tempfile.TemporaryDirectory() as folder, peers.forebay(options.bin, Path(folder)) as server:
        fill(server)
        latencies(server, 0.5)
        for _ in range(options.rounds):
            alone = p99(latencies(server, options.seconds))
            with crowd(server):
                beside = p99(latencies(server, options.seconds))
            rounds.append((alone, beside))
    alone = statistics.median(a for a, _ in rounds)
    beside = statistics.median(b for _, b in rounds)
    row = {
        "what": f"GET of {SIZE // KIB} KiB beside {IDLE} idle and {BODIES + READERS} stalled clients",
        "p99_alone_ms": alone * 1e3,
        "p99_beside_ms": beside * 1e3,
        "ratio": beside / alone,
        "rounds": rounds,
    }
    print(f"{row['what']}: p99 {alone * 1e3:.2f} ms alone, {beside * 1e3:.2f} ms beside, "
          f"ratio {beside / alone:.2f}")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "crowd.json").write_text(json.dumps(row, indent=2))


if __name__ == "__main__":
    main()
