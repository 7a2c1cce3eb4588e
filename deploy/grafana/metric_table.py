"""Reads the metrics that nodes export from the tables of docs/metrics.md."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs/metrics.md"
HISTOGRAM_SUFFIXES = ("_bucket", "_sum", "_count")
_CELLS = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True)
class Metric:
    """A metric: its name, its type in the words of Prometheus, its labels, its unit and its meaning."""

    name: str
    kind: str
    labels: tuple[str, ...]
    unit: str
    meaning: str


def rows(text: str, columns: int) -> list[list[str]]:
    """The cells of all rows of tables that have this many columns, without heads and rules."""
    found = []
    for line in text.splitlines():
        if line.startswith("| `"):
            cells = [cell.strip() for cell in _CELLS.split(line)[1:-1]]
            if len(cells) == columns:
                found.append(cells)
    return found


def read(text: str | None = None) -> dict[str, Metric]:
    """All metrics of the page by name. A metric that gateways and targets export is one metric."""
    text = PAGE.read_text(encoding="utf-8") if text is None else text
    metrics: dict[str, Metric] = {}
    for name, kind, labels, unit, meaning in rows(text, 5):
        metric = Metric(name.strip("`"), kind, tuple(re.findall(r"`(\w+)`", labels)), unit, meaning)
        if metrics.setdefault(metric.name, metric) != metric:
            raise ValueError(f"{PAGE.name} has two descriptions of {metric.name}")
    if not metrics:
        raise ValueError(f"{PAGE.name} has no table of metrics")
    return metrics


def label_values(text: str | None = None) -> dict[tuple[str, str], list[str]]:
    """The values that the page names for a label of a metric, by metric and label."""
    text = PAGE.read_text(encoding="utf-8") if text is None else text
    found = {}
    for label, families, values in rows(text, 3):
        for family in re.findall(r"`(\w+)`", families):
            # A value stands before its explanation in brackets.
            plain = re.sub(r"\([^)]*\)", "", values.split(". ")[0])
            found[family, label.strip("`")] = re.findall(r"`([^`]+)`", plain)
    return found


def family_of(name: str, metrics: dict[str, Metric]) -> Metric | None:
    """The metric that a series belongs to: its own name, or that of its histogram."""
    if name in metrics:
        return metrics[name]
    for suffix in HISTOGRAM_SUFFIXES:
        base = metrics.get(name.removesuffix(suffix))
        if name.endswith(suffix) and base and base.kind == "histogram":
            return base
    return None
