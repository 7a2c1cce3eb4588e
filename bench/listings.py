"""How fast names and sizes of a bucket are listed: by servers, and through clients."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import statistics
import struct
import sys
import time
import urllib.parse
from collections.abc import Callable

import measurement
from peers import Forebay, Minio, Server

Row = dict[str, object]
Way = Callable[[], tuple[int, float]]
"""Lists a bucket; how many names that were, and the seconds it took."""

BUCKET = "million"
BLOCKS = "application/vnd.forebay.listing"
SHARES = {"Forebay": 1, "AIStore": 10, "MinIO": 50}
"""Of the names each server has one in so many, because some take long to get them."""


def share(server: Server, count: int) -> int:
    """How many of `count` names a server gets; none when it is not listed."""
    part = SHARES.get(server.name)
    return count // part if part else 0


def measure(servers: list[Server], count: int, rounds: int) -> list[Row]:
    """Names a second of every way, the median of some rounds and their spread."""
    rows: list[Row] = []
    for server in servers:
        have = share(server, count)
        for name, way in ways(server).items() if have else ():
            speeds = []
            for _ in range(rounds):
                names, took = way()
                if names != have:
                    sys.exit(f"error: {name} lists {names} names of {have}")
                speeds.append(names / took)
            spread = measurement.spread(speeds)
            rows.append(
                {"lister": name, "names_per_s": statistics.median(speeds), "spread": spread}
            )
    return rows


def show(rows: list[Row]) -> None:
    for row in rows:
        print(
            f"  {row['lister']:<40} {row['names_per_s']:>12,.0f} names/s, spread {row['spread']:.2f}"
        )


def ways(server: Server) -> dict[str, Way]:
    """Ways to list one server: what it sends over v1 and S3, then clients in Python."""
    found: dict[str, Way] = {}
    if not isinstance(server, Minio):
        with contextlib.suppress(ImportError):
            import msgspec  # noqa: F401

            for page in (1000, 10_000):
                found[f"{server.name}, v1 pages of {page}"] = lambda page=page: by_pages(server, page)
    if isinstance(server, Forebay):
        found["Forebay, one stream"] = lambda: by_stream(server)
    if isinstance(server, Forebay | Minio):
        found[f"{server.name}, ListObjectsV2"] = lambda: by_s3(server)
    if not isinstance(server, Minio):
        with contextlib.suppress(ImportError):
            from aistore.sdk import Client

            theirs = Client(server.endpoint).bucket(BUCKET)
            name = f"AIStore's SDK on {server.name}"
            found[name] = timed(lambda: len(theirs.list_all_objects(props="name,size")))
    if isinstance(server, Forebay):
        import forebay

        ours = forebay.Client(server.endpoint).bucket(BUCKET)
        found["our SDK on Forebay"] = timed(lambda: sum(1 for _ in ours.list_objects()))
        found["our SDK on Forebay, list_snapshot"] = timed(lambda: len(ours.list_snapshot()))
    return found


def timed(call: Callable[[], int]) -> Way:
    def way() -> tuple[int, float]:
        start = time.perf_counter()
        return call(), time.perf_counter() - start

    return way


def ask(
    at: http.client.HTTPConnection, path: str, headers: dict[str, str], body: str | None = None
) -> tuple[bytes, float]:
    """One answer and the seconds it took."""
    start = time.perf_counter()
    at.request("GET", path, body, headers)
    reply = at.getresponse()
    answer = reply.read()
    took = time.perf_counter() - start
    if reply.status != 200:
        sys.exit(f"error: a listing fails: {answer[:200]!r}")
    return answer, took


def connect(endpoint: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(endpoint.removeprefix("http://"))


def by_pages(server: Server, page: int) -> tuple[int, float]:
    """Over v1 in MessagePack, its pages decoded outside of the time."""
    import msgspec

    at, names, token, took = connect(server.endpoint), 0, "", 0.0
    headers = {"Accept": "application/msgpack", "Content-Type": "application/json"}
    while True:
        value = {"props": "name,size", "pagesize": page, "continuation_token": token}
        body = json.dumps({"action": "list", "value": value})
        answer, seconds = ask(at, f"/v1/buckets/{BUCKET}?provider=ais", headers, body)
        took += seconds
        decoded = msgspec.msgpack.decode(answer)
        names += len(decoded.get("Entries") or [])
        token = decoded.get("ContinuationToken") or ""
        if not token:
            return names, took


def by_stream(server: Server) -> tuple[int, float]:
    """In one stream of blocks, as core/src/list_columns.rs describes them."""
    body = json.dumps({"action": "list", "value": {"props": "name,size"}})
    headers = {"Accept": BLOCKS, "Content-Type": "application/json"}
    path = f"/v1/buckets/{BUCKET}?provider=ais"
    answer, took = ask(connect(server.endpoint), path, headers, body)
    rows, offset, more = 0, 0, 1
    while more:
        magic, more, count, names = struct.unpack_from("<4sB3xII", answer, offset)
        if magic != b"FBL\x01":
            sys.exit("error: a listing has a block of another version")
        rows, offset = rows + count, offset + 16 + 21 * count + names
    return rows, took


def by_s3(server: Server) -> tuple[int, float]:
    """By ListObjectsV2 in pages of 1000; a bucket of the bench may be listed by anybody."""
    root = server.s3.format(bucket=BUCKET)
    at, names, token, took = connect(f"http://{server.front}"), 0, "", 0.0
    while True:
        query = f"?list-type=2&continuation-token={urllib.parse.quote(token)}" if token else "?list-type=2"
        answer, seconds = ask(at, root + query, {})
        took += seconds
        names += answer.count(b"<Key>")
        following = re.search(rb"<NextContinuationToken>(.*?)</NextContinuationToken>", answer)
        if following is None:
            return names, took
        token = following[1].decode().replace("&amp;", "&").replace("&quot;", '"')
