"""The rows of the comparison: what is defined before a run, and what a run measures of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from compare.runner import Run

Side = Literal["ours", "peer", "roof"]


@dataclass(frozen=True)
class Seed:
    """A figure of a document that Forebay answers: the text of the figure and the document.

    Attributes:
        over: Our contender's counterpart of what the document is faster than.
        ratio: How many times as fast as that the document is.
    """

    figure: str
    source: str
    over: str = ""
    ratio: float | None = None


@dataclass(frozen=True)
class Row:
    """A row, as it is defined.

    Attributes:
        id: Unique in all sections; `SECTION/KEY`.
        title: The workload, as the pages print it.
        unit: Of the values, for example "samples/s" or "s".
        higher_is_better: Whether a larger value is faster.
        seed: The figure of a document that this row answers.
        scale: The part of the document that is smaller here, and why.
        reason: Why a peer is ahead, for runs in which one is.
        headline: Whether the README has this row.
    """

    id: str
    title: str
    unit: str = "samples/s"
    higher_is_better: bool = True
    seed: Seed | None = None
    scale: str = ""
    reason: str = ""
    headline: bool = False

    @property
    def section(self) -> str:
        return self.id.partition("/")[0]


@dataclass
class Contender:
    """One contender's figures of a row. The value is the median of the rounds.

    Attributes:
        spread: The best round over the worst.
        client_cpu_us, server_cpu_us: CPU time per item; None where it was not measured.
        client_bytes, server_bytes: Memory: the most of the client, and of the server after the rounds.
    """

    name: str
    side: Side
    value: float
    spread: float = 1.0
    client_cpu_us: float | None = None
    server_cpu_us: float | None = None
    client_bytes: int | None = None
    server_bytes: int | None = None


@dataclass
class Measured:
    """A row with its contenders. The first contender of our side is the one that is compared.

    Attributes:
        skipped: Contenders that were not measured: name -> reason.
        notes: Short facts of this run that the pages print below the row.
    """

    row: Row
    contenders: list[Contender] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {
            **asdict(self.row),
            "section": self.row.section,
            "contenders": [asdict(contender) for contender in self.contenders],
            "skipped": self.skipped,
            "notes": self.notes,
        }


@dataclass(frozen=True)
class Section:
    """A part of the run, which a later call can resume after.

    Attributes:
        rows: All rows that `measure` may return.
        measure: Measures the rows; a row whose contenders are all missing is returned with `skipped`.
        minutes: Of a whole run, roughly.
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    measure: Callable[[Run], Iterable[Measured]]
    minutes: float = 1.0


Json = dict[str, Any]
LEVEL = 1.05
"""Contenders whose ratio is below this, either way, are level: runs differ by as much."""


def lead(row: Json) -> Json | None:
    """Our contender that is compared: the first of our side."""
    return next((c for c in row["contenders"] if c["side"] == "ours"), None)


def of_name(row: Json, name: str) -> Json | None:
    """The contender with a name, or the first one whose name begins with what is before `…`."""
    begin = name.removesuffix("…")
    found = (c for c in row["contenders"] if c["name"] == name or name != begin and c["name"].startswith(begin))
    return next(found, None)


def best(row: Json, side: Side = "peer") -> Json | None:
    """The best contender of a side."""
    choose = max if row["higher_is_better"] else min
    found = [c for c in row["contenders"] if c["side"] == side]
    return choose(found, key=lambda c: c["value"]) if found else None


def ratio(row: Json, other: Json, ours: Json | None = None) -> float | None:
    """How many times as fast as another contender ours is; without `ours`, the one that is compared."""
    ours = ours or lead(row)
    if ours is None or not ours["value"] or not other["value"]:
        return None
    of = ours["value"] / other["value"]
    return of if row["higher_is_better"] else 1 / of


def over_best(row: Json) -> float | None:
    """How many times as fast as the best peer ours is; None for a row that has only one side."""
    peer = best(row)
    return ratio(row, peer) if peer else None


def ahead(row: Json) -> str | None:
    """`ours`, `peer`, or None for a row that has only one side. It may be so by less than rounds differ."""
    of = over_best(row)
    return None if of is None else "ours" if of >= 1 else "peer"


def level_within(row: Json) -> float:
    """The ratio below which a row is level: `LEVEL`, or more where the rounds of both sides overlap.

    A spread is the best round over the worst, so a round differs from its median by about the root of
    it. Two medians whose ratio is below the product of both roots have rounds in common.
    """
    spreads = [contender["spread"] for contender in (lead(row), best(row)) if contender]
    return max(math.sqrt(math.prod(spreads)), LEVEL)


def level(row: Json) -> bool:
    """Whether ours and the best peer are as fast as each other, as far as this run can show."""
    of = over_best(row)
    return of is not None and max(of, 1 / of) < level_within(row)
