"""Plots of a run, as PNG."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from compare import results
from compare.row import Json, best, lead, over_best
from compare.table import duration, number

FOLDER = "docs/images"
RATIOS, CPU, README = "performance-ratios.png", "performance-cpu.png", "performance.png"
MAX_BYTES = 200_000
OURS, PEER = "tab:blue", "tab:orange"
Bars = list[tuple[str, list[float]]]
"""Labels with one value for each series."""


def write(folder: Path, document: Json) -> list[Path]:
    """Writes all plots; none where matplotlib is missing, with a message."""
    try:
        import matplotlib
    except ImportError:
        print("no plots: matplotlib is not installed", file=sys.stderr)
        return []
    matplotlib.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    made = [
        (README, ratios(results.headlines(document)), draw_ratios),
        (RATIOS, ratios(results.rows(document)), draw_ratios),
        (CPU, cpu(document), draw_cpu),
    ]
    written = []
    for name, bars, draw in made:
        if bars:
            draw(folder / name, bars)
            written.append(folder / name)
    return written


def ratios(rows: Iterable[Json]) -> Bars:
    """Forebay over the best peer of each row."""
    return [(row["title"], [of]) for row in rows if (of := over_best(row))]


def cpu(document: Json) -> Bars:
    """CPU time per item of client and servers in µs: ours and the best peer's, in the feeding rows."""
    bars = []
    for row in results.rows(document):
        pair = [lead(row), best(row)]
        if row["section"] != "feeding" or not all(one and one["client_cpu_us"] for one in pair):
            continue
        spent = [one["client_cpu_us"] + (one["server_cpu_us"] or 0) for one in pair if one]
        bars.append((row["title"], spent))
    return bars


def draw_ratios(path: Path, bars: Bars) -> None:
    """Bars that begin at 1, to the right where Forebay is ahead."""
    labels, values = [label for label, _ in bars], [of for _, (of,) in bars]
    with drawing(path, len(bars)) as axes:
        colours = [OURS if of >= 1 else PEER for of in values]
        drawn = axes.barh(labels, [of - 1 for of in values], 0.7, left=1, color=colours)
        axes.bar_label(drawn, [f"{number(of)} ×" for of in values], padding=3, fontsize=7)
        axes.axvline(1, color="black", linewidth=1)
        axes.set(title="Forebay over the best peer; left of 1 the peer is ahead")


def draw_cpu(path: Path, bars: Bars) -> None:
    with drawing(path, 2 * len(bars)) as axes:
        for at, (name, colour) in enumerate((("Forebay", OURS), ("best peer", PEER))):
            places = [row + 0.4 * at - 0.2 for row in range(len(bars))]
            values = [pair[at] for _, pair in bars]
            drawn = axes.barh(places, values, 0.4, label=name, color=colour)
            axes.bar_label(drawn, map(duration, values), padding=3, fontsize=7)
        axes.set_yticks(range(len(bars)), [label for label, _ in bars])
        axes.set(title="CPU time per item, client + server, in µs")
        axes.legend()


@contextlib.contextmanager
def drawing(path: Path, lines: int) -> Iterator[Any]:
    """Axes with a logarithmic scale and room for so many bars; saved at the end."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 1 + 0.2 * lines), layout="constrained")
    yield axes
    axes.set(xscale="log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.tick_params(axis="y", labelsize=7)
    axes.invert_yaxis()
    axes.margins(x=0.15, y=0.01)
    # Without the version of matplotlib in the file, equal data makes equal files.
    figure.savefig(path, dpi=72, metadata={"Software": None})
    pyplot.close(figure)
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path}: {path.stat().st_size} bytes, and at most {MAX_BYTES} are allowed")
