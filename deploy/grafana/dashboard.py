"""A dashboard: its variables, its rows, and the JSON that Grafana reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from metric_table import Metric
from panel import CLUSTER, DATASOURCE, Json, Row, panel_json

# The last version of the JSON that Grafana 12 has; older ones of it read the same panels.
SCHEMA_VERSION = 42
COLUMNS = 24


@dataclass(frozen=True)
class Variable:
    """A variable of a dashboard: a label, and the series whose values of it are the choices."""

    name: str
    label: str
    series: str
    help: str
    # Matches nodes without the label, too. Without it, all means each known value.
    all_value: str | None = ".*"


@dataclass(frozen=True)
class Dashboard:
    """A dashboard. Links and bookmarks hold its `uid`, so that never changes."""

    uid: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]


_JOBS = f'{CLUSTER},job=~"$job"'
NODE_VARIABLES = (
    Variable("cluster", "Cluster", "forebay_build_info", "Label that a Prometheus of several clusters adds."),
    Variable(
        "namespace",
        "Namespace",
        'forebay_build_info{cluster=~"$cluster"}',
        "Namespace of Kubernetes.",
    ),
    # Metrics of processes have no prefix: without the names of jobs they would be those of all programs.
    Variable("job", "Job", f"forebay_build_info{{{CLUSTER}}}", "Gateways or targets.", None),
    Variable("instance", "Node", f"forebay_build_info{{{_JOBS}}}", "One node or several."),
)


def dashboard_json(dashboard: Dashboard, metrics: Mapping[str, Metric]) -> Json:
    """The JSON of a dashboard."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["forebay"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timepicker": {},
        "timezone": "browser",
        "fiscalYearStartMonth": 0,
        "weekStart": "",
        "annotations": {"list": [_annotations()]},
        "links": [_links()],
        "templating": {"list": [_datasource(), *map(_variable, dashboard.variables)]},
        "panels": _panels(dashboard, metrics),
    }


def _panels(dashboard: Dashboard, metrics: Mapping[str, Metric]) -> list[Json]:
    """The panels, from left to right and from the top, below the title of their row."""
    panels: list[Json] = []
    y = number = 0
    for row in dashboard.rows:
        number += 1
        head: Json = {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": row.closed,
            "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y},
            "panels": [],
        }
        panels.append(head)
        y += 1
        x = height = 0
        for panel in row.panels:
            number += 1
            if x + panel.width > COLUMNS:
                x, y, height = 0, y + height, 0
            position = {"h": panel.height, "w": panel.width, "x": x, "y": y}
            made = panel_json(panel, number, position, metrics)
            (head["panels"] if row.closed else panels).append(made)
            x, height = x + panel.width, max(height, panel.height)
        y += height
    return panels


def _datasource() -> Json:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "regex": "",
        "current": {},
        "options": [],
        "refresh": 1,
        "hide": 0,
        "includeAll": False,
        "multi": False,
    }


def _variable(variable: Variable) -> Json:
    query = f"label_values({variable.series}, {variable.name})"
    made: dict[str, Any] = {
        "name": variable.name,
        "label": variable.label,
        "description": variable.help,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"qryType": 1, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
        "regex": "",
        "current": {"text": ["All"], "value": ["$__all"]},
        "options": [],
        # At each change of the time range: nodes come and go.
        "refresh": 2,
        "sort": 1,
        "hide": 0,
        "includeAll": True,
        "multi": True,
    }
    if variable.all_value is not None:
        made["allValue"] = variable.all_value
    return made


def _annotations() -> Json:
    """Annotations that users add by hand."""
    return {
        "builtIn": 1,
        "datasource": {"type": "grafana", "uid": "-- Grafana --"},
        "enable": True,
        "hide": True,
        "iconColor": "rgba(0, 211, 255, 1)",
        "name": "Annotations & Alerts",
        "type": "dashboard",
    }


def _links() -> Json:
    """Links to the other dashboards, with the time range and the variables."""
    return {
        "title": "Forebay",
        "type": "dashboards",
        "tags": ["forebay"],
        "asDropdown": False,
        "icon": "external link",
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "tooltip": "",
        "url": "",
    }
