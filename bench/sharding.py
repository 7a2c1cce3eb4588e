"""How fast the objects of a bucket are packed into shards: `forebay ishard` and AIStore's own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import peers
from listings import BUCKET, share
from peers import Forebay, Server

Row = dict[str, Any]
SIZE = "16MiB"
FIXED = ("127.0.0.1", 8080)
"""Where AIStore's ishard looks for its cluster; the path cannot be configured."""


def measure(servers: list[Server], count: int, binary: str, ishard: str | None) -> list[Row]:
    """Packs the bucket that `listings` lists, once on each server that has a tool for it."""
    rows = []
    for server in servers:
        if isinstance(server, Forebay):
            command = [binary, "ishard", f"ais://{BUCKET}", "ais://packed", "--size", SIZE]
            command += ["--wait", "--progress", "none"]
        elif server.name == "AIStore" and ishard:
            command = [ishard, f"-src_bck=ais://{BUCKET}", "-dst_bck=ais://packed"]
            command += [f"-shard_size={SIZE}"]
        else:
            continue
        have = share(server, count)
        server.make_bucket("packed")
        env = {**os.environ, "FOREBAY_ENDPOINT": server.endpoint, "AIS_ENDPOINT": server.endpoint}
        with contextlib.nullcontext() if isinstance(server, Forebay) else reachable(server):
            start = time.perf_counter()
            done = subprocess.run(
                command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
            took = time.perf_counter() - start
        if done.returncode:
            sys.exit(f"error: ishard on {server.name} fails: {done.stderr.decode()[-500:]}")
        rows.append(
            {"server": server.name, "objects": have, "seconds": took, "shards": packed(server)}
        )
    if len(rows) == 1:
        print("not measured: AIStore's ishard (--ishard)", file=sys.stderr)
    return rows


@contextlib.contextmanager
def reachable(server: Server) -> Iterator[None]:
    """Passes connections to `FIXED` on to the server's front; objects go past it by redirects."""
    host, _, port = server.endpoint.removeprefix("http://").partition(":")

    def copy(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError), source.makefile("rb", 0) as read:
            shutil.copyfileobj(read, sink.makefile("wb", 0))
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                ours, _ = listener.accept()
                theirs = socket.create_connection((host, int(port)))
                for pair in ((ours, theirs), (theirs, ours)):
                    threading.Thread(target=copy, args=pair, daemon=True).start()

    with socket.create_server(FIXED) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield


def packed(server: Server) -> int:
    """Shards that are there afterwards; none at all is an error."""
    body = {"action": "list", "value": {"props": "name,size"}}
    url = f"{server.endpoint}/v1/buckets/packed?provider=ais"
    entries = json.loads(peers.call("GET", url, body))["entries"] or []
    shards = sum(entry["name"].endswith(".tar") for entry in entries)
    if not shards:
        sys.exit(f"error: ishard on {server.name} made no shards")
    return shards


def show(rows: list[Row]) -> None:
    for row in rows:
        rate = row["objects"] / row["seconds"]
        print(f"  {row['server']:<12} ishard {rate:>12,.0f} objects/s, {row['shards']} shards")
