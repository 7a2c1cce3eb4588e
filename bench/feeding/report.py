"""Reports of the measurements, as tables, a document and plots."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import measurement
from feeding.reader import Pass, Spec
from feeding.rows import BEST, Row

MIB = 1 << 20
Result = dict[str, Any]
GOOD_SHARE = 0.8
"""Of a roof: a reader that comes so near to it cannot be made much faster."""


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def result(spec: Spec, passes: list[Pass], grown: int) -> Result:
    """Medians over the passes of a reader."""
    rates = [done.items / done.seconds for done in passes]
    items = sum(done.items for done in passes)
    seconds = sum(done.seconds for done in passes)
    cpu_s = sum(done.cpu_s for done in passes)
    return {
        "reader": spec.name,
        "side": "ours" if spec.ours else "roof" if spec.roof else "peer",
        "items_per_s": statistics.median(rates),
        "bytes_per_s": statistics.median(done.bytes / done.seconds for done in passes),
        "spread": measurement.spread(rates),
        "client_us": cpu_s * 1e6 / items,
        "server_us": sum(done.server_cpu_s for done in passes) * 1e6 / items,
        "outside_share": 1 - sum(done.marked_s for done in passes) / max(cpu_s, 1e-9),
        "wait_share": sum(done.wait_s for done in passes) / seconds,
        "seconds_per_million": 1e6 / statistics.median(rates),
        "memory": grown,
    }


def judged(row: Row, results: list[Result]) -> Result:
    """A row's results with our ratios, and which goals they reach."""
    ours = results[0]
    peers = {r["reader"]: r for r in results if r["side"] == "peer"}
    for one in results:
        one["ours_is"] = ours["items_per_s"] / one["items_per_s"]
    best = max(peers.values(), key=lambda r: r["items_per_s"], default=None)
    goals = []
    for name, times in row.goals.items():
        peer = best if name == BEST else peers.get(name)
        if peer is not None:
            goals.append({"over": peer["reader"], "goal": times, "ratio": peer["ours_is"]})
    roofs = [r["items_per_s"] for r in results if r["side"] == "roof"]
    return {
        "key": row.key,
        "title": row.title,
        "readers": results,
        "best_peer": best["reader"] if best else None,
        "goals": goals,
        "roof_share": ours["items_per_s"] / max(roofs) if roofs else None,
        "memory_limit": row.memory,
        "waits": row.compute_s > 0,
        "decodes": row.cold,
    }


def verdict(row: Result) -> list[str]:
    """A line for each goal."""
    lines = []
    ours = row["readers"][0]
    share = row["roof_share"]
    for goal in row["goals"]:
        reached = goal["ratio"] >= goal["goal"]
        line = f"{goal['ratio']:.1f} × {goal['over']}, to reach {goal['goal']:g} ×: "
        line += "reached" if reached else "missed"
        if not reached and share is not None:
            line += f", at {share:.0%} of the roof"
            line += "" if share < GOOD_SHARE else ", which excuses it"
        lines.append(line)
    if row["memory_limit"]:
        least = min((r for r in row["readers"] if r["side"] == "ours"), key=lambda r: r["memory"])
        limit = row["memory_limit"]
        state = "reached" if ours["memory"] <= limit else "missed"
        lines.append(
            f"memory {ours['memory'] / MIB:,.0f} MiB of at most {limit / MIB:,.0f}: {state}"
            f" ({least['reader']}: {least['memory'] / MIB:,.0f})"
        )
    if row["waits"]:
        state = "reached" if ours["wait_share"] < 0.01 else "missed"
        lines.append(f"waits {ours['wait_share']:.2%} of the time, to reach < 1 %: {state}")
    if row["decodes"]:
        state = "reached" if ours["outside_share"] <= 0.1 else "missed"
        lines.append(f"CPU outside decoding {ours['outside_share']:.0%}, at most 10 %: {state}")
    if row["key"] == "sampler":
        state = "reached" if ours["seconds_per_million"] <= 0.2 else "missed"
        lines.append(f"{ours['seconds_per_million']:.2f} s per million, at most 0.2 s: {state}")
    if row["key"] == "headline" and len(row["readers"]) > 2:
        by_shards, http = row["readers"][1:3]
        over = by_shards["items_per_s"] / http["items_per_s"]
        state = "reached" if over >= 500 else "missed"
        lines.append(f"by shards {over:,.0f} × {http['reader']}, to reach 500 ×: {state}")
    return lines


def table(row: Result) -> str:
    """One row of the bench in Markdown."""
    third = "wait" if row["waits"] else "outside decoding" if row["decodes"] else None
    head = ["reader", "items/s", "MB/s", "client µs", "server µs", "memory MiB", "spread"]
    head.append("ours is")
    lines = [f"\n### {row['title']} (`{row['key']}`)\n"]
    cells = [*head, third] if third else head
    lines += ["| " + " | ".join(cells) + " |", "|---|" + "--:|" * (len(cells) - 1)]
    for one in row["readers"]:
        cells = [
            f"**{one['reader']}**" if one["side"] == "ours" else one["reader"],
            number(one["items_per_s"]),
            f"{one['bytes_per_s'] / 1e6:,.0f}",
            f"{one['client_us']:,.1f}",
            f"{one['server_us']:,.1f}",
            f"{one['memory'] / MIB:,.0f}",
            f"{one['spread']:.2f}",
            f"{one['ours_is']:,.2f} ×",
        ]
        if third:
            cells.append(f"{one['wait_share' if row['waits'] else 'outside_share']:.1%}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *(f"- {line}" for line in verdict(row))])


def summary(rows: Iterable[Result]) -> str:
    """The table of targets."""
    lines = [
        "\n| workload | best peer | ours | ratio | to reach | of the roof | CPU, client + server |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        ours = row["readers"][0]
        best = next((r for r in row["readers"] if r["reader"] == row["best_peer"]), None)
        share = row["roof_share"]
        cells = [
            row["title"],
            f"{best['reader']} {number(best['items_per_s'])}/s" if best else "",
            f"{ours['wait_share']:.2%}" if row["waits"] else f"{number(ours['items_per_s'])}/s",
            ", ".join(f"{g['ratio']:,.1f} ×" for g in row["goals"]),
            ", ".join(f"{g['goal']:g} ×" for g in row["goals"]),
            f"{share:.0%}" if share else "",
            f"{number(ours['client_us'])} + {number(ours['server_us'])} µs",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def document(result: Result) -> str:
    text = ["# Feeding the training loop\n", summary(result["rows"]), *map(table, result["rows"])]
    if result["workers"]:
        text.append("\n### items/s with workers and threads\n")
        numbers = sorted({p["number"] for p in result["workers"]})
        text.append("| class | | " + " | ".join(map(str, numbers)) + " |")
        text.append("|---|---|" + "--:|" * len(numbers))
        for name, kind in dict.fromkeys((p["class"], p["kind"]) for p in result["workers"]):
            rates = {p["number"]: p["items_per_s"] for p in of(result["workers"], name, kind)}
            cells = " | ".join(f"{rates[n]:,.0f}" for n in numbers)
            text.append(f"| {name} | {kind} | {cells} |")
    return "\n".join(text) + "\n"


def point(name: str, kind: str, number: int, rates: list[float]) -> Result:
    """One point of the plot."""
    return {
        "class": name,
        "kind": kind,
        "number": number,
        "items_per_s": statistics.median(rates),
        "least": min(rates),
        "most": max(rates),
    }


def of(points: list[Result], name: str, kind: str) -> list[Result]:
    return [p for p in points if (p["class"], p["kind"]) == (name, kind)]


def show_plot(points: list[Result]) -> None:
    name = points[0]["class"]
    for kind in ("workers", "threads"):
        rates = ", ".join(f"{p['number']}: {p['items_per_s']:,.0f}" for p in of(points, name, kind))
        print(f"{name}, items/s by {kind}: {rates}", flush=True)


def plots(points: list[Result], out: Path) -> None:
    """A picture for each class: rates over workers, and over threads."""
    if not points:
        return
    try:
        import matplotlib
    except ImportError:
        print("no plots: matplotlib is not installed", file=sys.stderr)
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    for name in dict.fromkeys(p["class"] for p in points):
        figure, axes = pyplot.subplots(figsize=(5, 3.5), layout="constrained")
        for kind in ("workers", "threads"):
            chosen = of(points, name, kind)
            rates = [p["items_per_s"] for p in chosen]
            below = [p["items_per_s"] - p["least"] for p in chosen]
            above = [p["most"] - p["items_per_s"] for p in chosen]
            numbers = [p["number"] for p in chosen]
            axes.errorbar(numbers, rates, (below, above), marker="o", capsize=3, label=kind)
        axes.set(title=name, xlabel="workers or threads", ylabel="items/s", ylim=(0, None))
        axes.legend()
        figure.savefig(out / f"feed-{name}.png", dpi=120)
        pyplot.close(figure)
