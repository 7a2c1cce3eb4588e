"""Plots of a run, as PNG."""

from __future__ import annotations

import sys
from pathlib import Path

from compare import results
from compare.row import Json, best, lead, over_best

FOLDER = "docs/images"
RATIOS, CPU = "performance-ratios.png", "performance-cpu.png"
MAX_BYTES = 200_000


def write(folder: Path, document: Json) -> list[Path]:
    """Writes both plots; none where matplotlib is missing, with a message."""
    try:
        import matplotlib
    except ImportError:
        print("no plots: matplotlib is not installed", file=sys.stderr)
        return []
    matplotlib.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    made = [(RATIOS, ratios(document)), (CPU, cpu(document))]
    written = []
    for name, bars in made:
        if bars:
            draw(folder / name, *bars)
            written.append(folder / name)
    return written


def ratios(document: Json) -> tuple[str, list[tuple[str, list[float]]], list[str]] | None:
    """Forebay over the best peer of each row."""
    bars = []
    for row in results.rows(document):
        if of := over_best(row):
            bars.append((row["title"], [of]))
    return ("Forebay over the best peer (1 = equal)", bars, ["Forebay"]) if bars else None


def cpu(document: Json) -> tuple[str, list[tuple[str, list[float]]], list[str]] | None:
    """CPU time per item of client and servers: ours and the best peer's, in the feeding rows."""
    bars = []
    for row in results.rows(document):
        pair = [lead(row), best(row)]
        if row["section"] != "feeding" or not all(one and one["client_cpu_us"] for one in pair):
            continue
        spent = [one["client_cpu_us"] + (one["server_cpu_us"] or 0) for one in pair if one]
        bars.append((row["title"], spent))
    return ("CPU time per item, client + server, µs", bars, ["Forebay", "best peer"]) if bars else None


def draw(path: Path, title: str, bars: list[tuple[str, list[float]]], names: list[str]) -> None:
    """Horizontal bars on a logarithmic scale."""
    from matplotlib import pyplot

    height = 1 + 0.24 * len(bars) * len(names)
    figure, axes = pyplot.subplots(figsize=(9, height), layout="constrained")
    width = 0.8 / len(names)
    for at, name in enumerate(names):
        places = [number + at * width for number in range(len(bars))]
        drawn = axes.barh(places, [values[at] for _, values in bars], width, label=name)
        axes.bar_label(drawn, fmt="{:.3g}", padding=2, fontsize=7)
    middle = 0.4 - width / 2
    axes.set_yticks([number + middle for number in range(len(bars))], [label for label, _ in bars], fontsize=7)
    axes.set(title=title, xscale="log")
    axes.invert_yaxis()
    axes.margins(x=0.1, y=0.01)
    if len(names) > 1:
        axes.legend()
    else:
        axes.axvline(1, color="black", linewidth=1)
    # Without the version of matplotlib in the file, equal data makes equal files.
    figure.savefig(path, dpi=72, metadata={"Software": None})
    pyplot.close(figure)
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path}: {path.stat().st_size} bytes, and at most {MAX_BYTES} are allowed")
