"""Rows, panels and queries of a dashboard as the tables state them, and the JSON that Grafana reads.

Expressions have short forms: `{NODES` begins a selector of the chosen nodes, `{CLUSTER` one of the chosen
cluster whatever the chosen nodes, and `[RATE]` is the range that suits the scrape interval and the zoom.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from metric_table import Metric, family_of

Json = dict[str, Any]

DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
CLUSTER = 'cluster=~"$cluster",namespace=~"$namespace"'
SELECTORS = {
    "{CLUSTER": f'{{{CLUSTER},job=~"$job"',
    "{NODES": f'{{{CLUSTER},job=~"$job",instance=~"$instance"',
    "{NAMESPACE": f"{{{CLUSTER}",
}
# Words of PromQL that a metric could be mistaken for.
_NAME = re.compile(r"(?<![\w\"$.])([a-zA-Z_:][\w:]*)\b(?!\s*\()")
_KEYWORDS = {
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
    "and",
    "or",
    "unless",
    "bool",
    "offset",
}

RATIO, SECONDS, SHORT = "percentunit", "s", "short"
# Units of the metric table as Grafana has them: of a value, and of its rate.
UNITS = {
    "bytes": ("bytes", "binBps"),
    "seconds": ("s", SHORT),
    "requests": (SHORT, "reqps"),
    "0 or 1": ("none", SHORT),
}
OTHER_UNIT = (SHORT, "cps")

GREEN, YELLOW, ORANGE, RED = "green", "yellow", "orange", "red"
Steps = tuple[tuple[float | None, str], ...]


@dataclass(frozen=True)
class Query:
    """An expression and how its series are called."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """A panel. Without `unit` it has the unit of the metric of its first query in the metric table."""

    title: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    unit: str = ""
    note: str = ""
    width: int = 8
    height: int = 8
    stacked: bool = False
    # Whether values below 0 exist; otherwise the axis begins at 0.
    signed: bool = False
    limit: float | None = None
    thresholds: Steps = ()
    values: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """A row with a title. The panels of a closed row are loaded when a user opens it."""

    title: str
    panels: tuple[Panel, ...]
    closed: bool = False


def long_form(expr: str) -> str:
    """The expression that Grafana gets."""
    expr = " ".join(expr.split())
    for short, selector in SELECTORS.items():
        expr = expr.replace(short, selector)
    return expr.replace("[RATE]", "[$__rate_interval]")


def names_in(expr: str) -> list[str]:
    """Names of series in an expression, each once, in their order."""
    bare = re.sub(r'"[^"]*"', "", expr)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", bare)
    bare = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", bare)
    found = (name for name in _NAME.findall(bare) if name not in _KEYWORDS)
    return list(dict.fromkeys(found))


def metrics_of(panel: Panel, metrics: Mapping[str, Metric]) -> list[Metric]:
    """The metrics of a panel, each once. Raises ValueError for one that nobody exports."""
    found = {}
    for query in panel.queries:
        for name in names_in(query.expr):
            metric = family_of(name, dict(metrics))
            if not metric:
                raise ValueError(f"panel {panel.title!r}: no metric {name}")
            found[metric.name] = metric
    return list(found.values())


def unit_of(panel: Panel, metrics: Mapping[str, Metric]) -> str:
    """The unit of a panel: its own, or that of the first metric of each query."""
    if panel.unit:
        return panel.unit
    units = set()
    for query in panel.queries:
        metric = family_of(names_in(query.expr)[0], dict(metrics))
        assert metric
        plain, rate = UNITS.get(metric.unit, OTHER_UNIT)
        # A quantile of a rate of buckets is a value.
        of_rate = re.search(r"\bi?rate\(", query.expr) and "histogram_quantile" not in query.expr
        if metric.kind == "histogram" and "_count" in query.expr:
            plain, rate = OTHER_UNIT
        units.add(rate if of_rate else plain)
    if len(units) != 1:
        raise ValueError(f"panel {panel.title!r}: the queries have the units {sorted(units)}")
    return units.pop()


def description_of(panel: Panel, metrics: Mapping[str, Metric]) -> str:
    """The note of a panel, and the meaning of each of its metrics."""
    lines = [panel.note] if panel.note else []
    lines += [f"`{metric.name}`: {metric.meaning}" for metric in metrics_of(panel, metrics)]
    return "\n\n".join(lines)


def panel_json(panel: Panel, number: int, position: Json, metrics: Mapping[str, Metric]) -> Json:
    """The JSON of a panel."""
    instant = panel.kind in ("stat", "table", "bargauge")
    unit = unit_of(panel, metrics)
    targets = []
    for index, query in enumerate(panel.queries):
        target: Json = {
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": long_form(query.expr),
            "instant": instant,
            "legendFormat": query.legend or "__auto",
            "range": not instant,
            "refId": chr(ord("A") + index),
        }
        if panel.kind in ("heatmap", "table"):
            target["format"] = panel.kind
        targets.append(target)
    made: Json = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": description_of(panel, metrics),
        "datasource": DATASOURCE,
        "gridPos": position,
        "targets": targets,
        "fieldConfig": {"defaults": _defaults(panel, unit), "overrides": []},
        "options": _options(panel, unit),
    }
    if panel.kind == "table":
        made["transformations"] = _columns(panel)
    return made


def _defaults(panel: Panel, unit: str) -> Json:
    """Settings of all fields of a panel."""
    if panel.kind == "heatmap":
        return {"custom": {"hideFrom": {"legend": False, "tooltip": False, "viz": False}}}
    defaults: Json = {"unit": unit}
    if panel.kind == "timeseries":
        if not panel.signed:
            defaults["min"] = 0
        defaults["custom"] = {
            "drawStyle": "line",
            "fillOpacity": 20 if panel.stacked else 0,
            "lineWidth": 1,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"group": "A", "mode": "normal" if panel.stacked else "none"},
            "thresholdsStyle": {"mode": "line" if panel.thresholds else "off"},
        }
    if panel.limit is not None:
        defaults["max"] = panel.limit
    steps = panel.thresholds or ((None, GREEN),)
    defaults["color"] = {"mode": "thresholds" if panel.kind in ("stat", "bargauge") else "palette-classic"}
    defaults["thresholds"] = {
        "mode": "absolute",
        "steps": [{"color": color, "value": value} for value, color in steps],
    }
    if panel.values:
        shown = {
            str(k): {"color": c, "index": i, "text": t} for i, (k, (t, c)) in enumerate(panel.values.items())
        }
        defaults["mappings"] = [{"type": "value", "options": shown}]
    return defaults


def _options(panel: Panel, unit: str) -> Json:
    """Options of the type of a panel."""
    calculation = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    if panel.kind == "stat":
        return {
            "colorMode": "value" if panel.thresholds or panel.values else "none",
            "graphMode": "none",
            "justifyMode": "auto",
            "orientation": "auto",
            "reduceOptions": calculation,
            "textMode": "value_and_name" if len(panel.queries) > 1 else "auto",
            "wideLayout": True,
        }
    if panel.kind == "bargauge":
        return {
            "displayMode": "basic",
            "orientation": "horizontal",
            "reduceOptions": calculation,
            "showUnfilled": True,
            "valueMode": "color",
        }
    if panel.kind == "heatmap":
        return {
            "calculate": False,
            "cellGap": 1,
            "color": {
                "exponent": 0.5,
                "fill": "dark-orange",
                "mode": "scheme",
                "scheme": "Oranges",
                "steps": 64,
            },
            "exemplars": {"color": "rgba(255,0,255,0.7)"},
            "filterValues": {"le": 1e-9},
            "legend": {"show": True},
            "rowsFrame": {"layout": "auto"},
            "tooltip": {"mode": "single", "showColorScale": True, "yHistogram": False},
            "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit},
        }
    if panel.kind == "table":
        return {"cellHeight": "sm", "footer": {"show": False}, "showHeader": True}
    return {
        "legend": {
            "calcs": ["mean", "max"],
            "displayMode": "table",
            "placement": "bottom",
            "showLegend": True,
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def _columns(panel: Panel) -> list[Json]:
    """The transformation that gives a table these columns in this order."""
    order = {name: index for index, name in enumerate(panel.columns)}
    return [
        {"id": "filterFieldsByName", "options": {"include": {"names": list(panel.columns)}}},
        {"id": "organize", "options": {"excludeByName": {}, "indexByName": order, "renameByName": {}}},
    ]
