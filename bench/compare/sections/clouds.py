"""A cloud 30 ms away: the rows of `bench/clouds.py`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from compare import seeds
from compare.row import Contender, Measured, Row, Section, Side
from compare.runner import Run

CLOUDS = {"aws": "MinIO", "gcp": "fake-gcs-server"}
OBJECTS, NAMES, VAST, LARGE_MIB = 3_000, 200_000, 1_000_000, 512
"""Of a whole run: objects of an epoch, skewed names, generated names, the large object."""


def row(key: str, title: str, unit: str, higher_is_better: bool = True) -> Row:
    row_id = f"clouds/{key}"
    return Row(row_id, title, unit, higher_is_better, **seeds.CLOUDS.get(row_id, {}))


COLD = {
    provider: row(f"cold-{provider}", f"cold epoch of objects of 100 KiB on {cloud}", "objects/s")
    for provider, cloud in CLOUDS.items()
}
WARM = {
    provider: row(f"warm-{provider}", f"second epoch of objects of 100 KiB on {cloud}", "objects/s")
    for provider, cloud in CLOUDS.items()
}
COMPOSED = row("composed", "1,024 cold objects of 10 KiB of Google's, one by one", "objects/s")
FIRST_BYTE = row("first-byte", "first byte of a large cold object", "ms", higher_is_better=False)
ONCE = row("once", "bytes fetched while 64 clients read one cold object", "× the object", False)
LISTED = row("listing", "skewed names of MinIO listed", "names/s")
CALLS = row("calls", "calls to list generated names", "× the pages", higher_is_better=False)
ROWS = (*COLD.values(), *WARM.values(), COMPOSED, FIRST_BYTE, ONCE, LISTED, CALLS)


def side(who: str) -> Side:
    return "ours" if who.startswith("Forebay") else "roof" if who == "the cloud" else "peer"


def contender(result: dict[str, Any], name: str = "") -> Contender:
    who = name or result["who"]
    return Contender(who, side(who), result["value"], result.get("spread", 1.0))


def sized(run: Run) -> list[str]:
    if run.quick:
        return ["--quick"]
    sizes = {"objects": OBJECTS, "names": NAMES, "vast": VAST, "large": LARGE_MIB, "rounds": run.rounds}
    return [word for name, value in sizes.items() for word in (f"--{name}", str(value))]


def measure(run: Run) -> Iterable[Measured]:
    if "minio" not in run.programs:
        why = run.missing.get("MinIO", "MinIO is not there")
        return [Measured(one, skipped={"all": why}) for one in ROWS]
    results = run.script("clouds.py", "clouds.json", *sized(run))
    return list(measured(results, run.missing.get("fake-gcs-server", "it has no such reader")))


def measured(results: list[dict[str, Any]], no_google: str) -> Iterable[Measured]:
    def of(suite: str) -> list[dict[str, Any]]:
        return [one for one in results if one["suite"].startswith(suite)]

    def named(suite: str, who: str) -> dict[str, Any]:
        return next(one for one in of(suite) if one["who"].strip() == who)

    for provider in CLOUDS:
        found = of(f"epoch, {provider}")
        if not found:
            yield Measured(COLD[provider], skipped={"all": no_google})
            yield Measured(WARM[provider], skipped={"all": no_google})
            continue
        others = [contender(one) for one in found if side(one["who"]) == "peer"]
        for rows, who in ((COLD, "Forebay, cold"), (WARM, "Forebay, warm")):
            ours = contender(named(f"epoch, {provider}", who))
            yield Measured(rows[provider], [ours, *others])
    if found := of("cold, gcp"):
        ways = [one for one in found if one["who"].startswith("Forebay")]
        reads = named("cold, gcp", "reads of objects, composed")["value"]
        notes = [f"composed: {reads:,.0f} reads"]
        yield Measured(COMPOSED, list(map(contender, ways)), notes=notes)
    else:
        yield Measured(COMPOSED, skipped={"all": no_google})
    firsts = [one for one in of("one cold object") if one["who"].startswith("first byte, ")]
    ways = [contender(one, one["who"].removeprefix("first byte, ")) for one in firsts]
    yield Measured(FIRST_BYTE, sorted(ways, key=lambda one: one.side != "ours"))
    once = named("one cold object", "bytes from the cloud, 64 clients")
    yield Measured(ONCE, [contender(once, "Forebay")])
    listed = [one for one in results if "skewed names" in one["suite"]]
    yield Measured(LISTED, sorted(map(contender, listed), key=lambda one: one.side != "ours"))
    calls = next(one for one in results if one["who"].strip() == "calls to the cloud")
    yield Measured(CALLS, [Contender("Forebay", "ours", calls["ratio"])])


SECTION = Section("clouds", "A cloud 30 ms away", ROWS, measure, minutes=10)
