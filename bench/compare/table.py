"""Figures as text, tables of pages, and the table that a run prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from compare.row import Json, ahead, best, lead, level, over_best, ratio


def number(value: float) -> str:
    """Three digits that mean something; thousands separated."""
    if value >= 1e6:
        return f"{value / 1e6:.3g} M"
    if value >= 100:
        digits = len(str(round(value)))
        return f"{round(value, 3 - digits):,.0f}"
    return f"{value:.3g}"


def times(value: float | None) -> str:
    return "" if value is None else f"{number(value)} ×"


def duration(us: float) -> str:
    """Microseconds as µs, ms or s."""
    for unit, of in (("s", 1e6), ("ms", 1e3)):
        if us >= 10 * of:
            return f"{number(us / of)} {unit}"
    return f"{number(us)} µs"


def amount(row: Json, contender: Json) -> str:
    """A contender's value with the unit of its row."""
    unit = row["unit"]
    if unit == "s" and contender["value"] < 0.1:
        return f"{number(contender['value'] * 1e3)} ms"
    per_second = unit.endswith("/s") and len(unit) > 4
    return number(contender["value"]) + ("/s" if per_second else f" {unit}")


def cells(row: Json) -> tuple[str, str, str, str]:
    """Ours, the best peer, the ratio (with a mark if the row is level), and the share of the best roof."""
    ours, peer, roof = lead(row), best(row), best(row, "roof")
    share = ratio(row, roof) if roof else None
    return (
        amount(row, ours) if ours else "not measured",
        f"{peer['name']} {amount(row, peer)}" if peer else "",
        times(over_best(row)) + (" (level)" if level(row) else ""),
        "" if share is None else f"{share:.0%}",
    )


def markdown(heads: list[str], lines: Iterable[Iterable[str]], of_text: bool = False) -> list[str]:
    """A table in Markdown; the first column is text, the others figures if not `of_text`."""
    made = ["| " + " | ".join(heads) + " |", "|---|" + ("---|" if of_text else "--:|") * (len(heads) - 1)]
    return made + ["| " + " | ".join(one) + " |" for one in lines]


def filled(heads: list[str], lines: Iterable[Iterable[str]]) -> list[str]:
    """A table of figures in Markdown without the columns that have none."""
    rows = [list(line) for line in lines]
    kept = [at for at in range(len(heads)) if any(row[at] for row in rows)]
    return markdown([heads[at] for at in kept], ([row[at] for at in kept] for row in rows))


def text_table(document: Json) -> str:
    return "\n".join(text_lines(document))


def text_lines(document: Json) -> Iterator[str]:
    yield f"{'row':<30} {'Forebay':>16}  {'best peer':<46} {'Forebay is':>10} {'of roof':>8}"
    for section in document["sections"].values():
        for row in section["rows"]:
            ours, peer, of, share = cells(row)
            mark = " <- a peer is ahead" if ahead(row) == "peer" else ""
            yield f"{row['id']:<30} {ours:>16}  {peer:<46} {of:>10} {share:>8}{mark}"
            for name, reason in row["skipped"].items():
                yield f"    not measured: {name}: {reason}"
    for peer, reason in document["missing"].items():
        yield f"not measured: {peer}: {reason}"
