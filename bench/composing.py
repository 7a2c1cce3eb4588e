"""Small cold objects of Google Cloud Storage, one by one and composed: seconds and requests of each way."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import peers
from peers import Forebay

WAYS = {"one by one": "off", "composed": "on"}
"""Values of the bucket's property `cloud.compose`."""
OBJECTS, OBJECT_BYTES = 1024, 10 << 10


@dataclass
class Cold:
    """Cold reads of one way: seconds of each round, and the requests of the last."""

    seconds: list[float] = field(default_factory=list)
    requests: dict[str, int] = field(default_factory=dict)


def evict(server: Forebay, bucket: str, provider: str) -> None:
    """Makes a bucket cold: the cluster forgets it, the cloud keeps it."""
    url = f"{server.endpoint}/v1/buckets/{bucket}?provider={provider}&keep_bck_md=true"
    peers.call("DELETE", url, {"action": "evict-remote-bck"})


def requests(server: Forebay, bucket: str) -> dict[str, int]:
    """Requests to the cloud so far: reads of objects, and what Google bills by class."""
    import forebay

    info = forebay.Client(server.endpoint).bucket(bucket, provider="gcp").info()
    return {"reads of objects": server.backend_calls("gcp", "get"), **info["bill"]["requests"]}


def measure(server: Forebay, bucket: str, names: list[str], size: int, rounds: int) -> dict[str, Cold]:
    """Reads all names in one batch, cold, by each way in turns."""
    import forebay

    source = forebay.Client(server.endpoint).bucket(bucket, provider="gcp")
    url = f"{server.endpoint}/v1/buckets/{bucket}?provider=gcp"
    measured = {way: Cold() for way in WAYS}
    for _ in range(rounds):
        for way, value in WAYS.items():
            peers.call("PATCH", url, {"action": "set-bprops", "value": {"cloud": {"compose": value}}})
            evict(server, bucket, "gcp")
            before = requests(server, bucket)
            start = time.perf_counter()
            batch = source.client.batch(bucket=source)
            for name in names:
                batch.add(name)
            got = sum(len(content) for _, content in batch.get_all())
            measured[way].seconds.append(time.perf_counter() - start)
            if got != len(names) * size:
                raise SystemExit(f"error: {way}: {got} bytes came of {len(names) * size}")
            after = requests(server, bucket)
            measured[way].requests = {key: after[key] - before[key] for key in after}
    return measured
