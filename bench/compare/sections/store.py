"""One target under HTTP load, and many small objects: the rows of `bench/store.py`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import store
from compare import seeds
from compare.row import Contender, Measured, Row, Section, Side
from compare.runner import Failed, Run

OBJECTS, QUICK_OBJECTS = 1_000_000, 20_000
GATEWAY = "store/s3-8m-gateway"
OURS = ("Forebay", *store.BY_S3[:2])
ROOFS = ("bare axum", *store.ROOFS)


def defined() -> Iterator[tuple[Row, str, str]]:
    """Rows of the loads, with the name of the load and of our contender that is compared."""
    for load in store.LOADS:
        lead = "Forebay by S3" if load.bucket.startswith("s3-") else "Forebay"
        unit = "GB/s" if load.large else "requests/s"
        row_id = f"store/{load.bucket}"
        yield Row(row_id, load.name, unit, **seeds.STORE.get(row_id, {})), load.name, lead
    load = next(load for load in store.LOADS if load.bucket == "s3-8m")
    said = seeds.STORE.get(GATEWAY, {})
    yield Row(GATEWAY, f"{load.name}, through a gateway", "GB/s", **said), load.name, store.BY_S3[1]


LOADS = tuple(defined())
LISTED = Row("store/listing", "names and sizes listed, 10^6 objects", "names/s")
DISK = Row("store/disk", "disk for 10^6 objects of 1 KiB", "× the payload", higher_is_better=False)
PACKED = Row("store/ishard", "10^6 objects packed into shards of 16 MiB", "objects/s")
STOPPED = Row("store/restart", "serving 10^6 objects again after a stop", "s", higher_is_better=False)
KILLED = Row("store/kill", "serving 10^6 objects again after kill -9", "s", higher_is_better=False)
MILLION = (LISTED, DISK, PACKED, STOPPED, KILLED)


def side(server: str) -> Side:
    return "roof" if server in ROOFS else "ours" if server in OURS else "peer"


def contender(row: Row, result: dict[str, Any]) -> Contender:
    large = row.unit == "GB/s"
    value = result["bytes_per_s"] / 1e9 if large else result["ops_per_s"]
    return Contender(
        result["server"], side(result["server"]), value, result["spread"],
        result["client_us_per_op"], result["server_us_per_op"],
    )  # fmt: skip


def measure(run: Run) -> Iterable[Measured]:
    if "load" not in run.programs:
        raise Failed("the load generator is not there: cargo build --profile dist -p forebay-load")
    objects = QUICK_OBJECTS if run.quick else OBJECTS
    arguments = ["--rounds", str(run.rounds), "--seconds", str(run.seconds)]
    arguments += ["--objects", str(objects)]
    result = run.script("store.py", "store.json", *arguments)
    for row, name, lead in LOADS:
        found = [one for one in result["loads"] if one["load"] == name]
        # Rows by S3 compare what S3 clients see; one of them goes through a gateway.
        found = [one for one in found if one["server"] == lead or side(one["server"]) != "ours"]
        found.sort(key=lambda one: one["server"] != lead)
        missing = {peer: why for peer, why in run.missing.items() if peer in besides(name)}
        yield Measured(row, [contender(row, one) for one in found], missing)
    yield from million(result["million"])


def besides(name: str) -> tuple[str, ...]:
    return next(load.besides for load in store.LOADS if load.name == name)


def million(result: dict[str, Any]) -> Iterator[Measured]:
    listed = [
        Contender(
            one["lister"], "ours" if one["lister"].endswith("Forebay") or ours_by(one) else "peer",
            one["names_per_s"], one["spread"],
        )
        for one in result["listing"]
    ]  # fmt: skip
    listed.sort(key=lambda one: (one.side != "ours", -one.value))
    notes = [f"{result['objects']:,} objects; AIStore has a tenth, MinIO a fiftieth"]
    yield Measured(LISTED, listed, notes=notes)
    disk = [
        Contender(one["server"], side(one["server"]), one["bytes_per_payload"],
                  server_bytes=one["resident"])
        for one in result["disk"]
    ]  # fmt: skip
    yield Measured(DISK, disk, notes=notes)
    packed = [
        Contender(one["server"], side(one["server"]), one["objects"] / one["seconds"])
        for one in result["ishard"]
    ]
    why = {} if len(packed) > 1 else {"AIStore's ishard": "it is no part of AIStore's module"}
    yield Measured(PACKED, packed, why)
    for row, restart in zip((STOPPED, KILLED), result["restart"], strict=True):
        yield Measured(row, [Contender("Forebay", "ours", restart["seconds"])])


def ours_by(one: dict[str, Any]) -> bool:
    return one["lister"].startswith(("Forebay", "our SDK"))


SECTION = Section(
    "store", "The store under HTTP load", (*(row for row, _, _ in LOADS), *MILLION), measure, minutes=8
)  # fmt: skip
