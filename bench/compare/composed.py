"""Composed reads on a bucket of yours in Google Cloud Storage, beside reads one by one.

    build/venv/bin/python bench/compare/composed.py gs://BUCKET --bin build/dist/forebay

Composed reads are off by default: they save calls, and on an emulator they take longer. This measures
both ways where you train: it writes small objects below a prefix of its own, starts a cluster of two
processes on this machine, reads the objects cold by each way in turns, and deletes them. It needs
application-default credentials with rights to list, read, write and delete objects. The requests are
billed by Google: about three for each object and round; the program prints how many.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import composing
import peers


def result(ways: dict[str, composing.Cold], count: int) -> dict[str, Any]:
    """Objects a second of each way, the ratio, and the requests of a round."""
    rates = {way: count / statistics.median(cold.seconds) for way, cold in ways.items()}
    return {
        "objects": count,
        "objects_per_s": rates,
        "composed_is": rates["composed"] / rates["one by one"],
        "requests": {way: cold.requests for way, cold in ways.items()},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bucket", help="gs://BUCKET")
    parser.add_argument("--bin", default="build/release/forebay", help="the forebay binary")
    parser.add_argument("--objects", type=int, default=composing.OBJECTS)
    parser.add_argument("--size", type=int, default=composing.OBJECT_BYTES, help="bytes of an object")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    name = options.bucket.removeprefix("gs://").strip("/")
    if not options.bucket.startswith("gs://") or not name or "/" in name:
        parser.error(f"{options.bucket}: give a bucket of Google's as gs://BUCKET")
    if not Path(options.bin).is_file():
        parser.error(f"--bin {options.bin}: no such file; make binary builds it")
    if min(options.objects, options.size, options.rounds) < 1:
        parser.error("--objects, --size and --rounds are at least 1")
    import forebay

    prefix = f"forebay-composed-{uuid.uuid4().hex[:8]}/"
    names = [f"{prefix}{number:06}" for number in range(options.objects)]
    with tempfile.TemporaryDirectory() as folder, peers.forebay(options.bin, Path(folder)) as server:
        bucket = forebay.Client(server.endpoint).bucket(name, provider="gcp")
        print(f"writing {len(names)} objects below gs://{name}/{prefix}", file=sys.stderr)
        try:
            content = bytes(options.size)
            bucket.put_many((one, content) for one in names)
            ways = composing.measure(server, name, names, options.size, options.rounds)
        finally:
            with ThreadPoolExecutor(16) as pool:
                list(pool.map(lambda one: bucket.object(one).delete(missing_ok=True), names))
    measured = result(ways, len(names))
    if options.json:
        print(json.dumps(measured, indent=1))
        return 0
    for way, rate in measured["objects_per_s"].items():
        print(f"{way:<12} {rate:>10,.0f} objects/s, requests: {measured['requests'][way]}")
    faster = measured["composed_is"]
    advice = "turn it on: forebay bucket set" if faster > 1 else "leave it off"
    print(f"composed reads have {faster:.2f} x the speed: {advice}" +
          (f" gs://{name} cloud.compose=on" if faster > 1 else ""))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
