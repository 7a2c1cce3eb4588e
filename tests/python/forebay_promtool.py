"""promtool, with which tests check rules and evaluate the expressions of panels and alerts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from forebay_chart import CHART, tool
from forebay_cluster import REPOSITORY

GENERATOR = REPOSITORY / "deploy/grafana"
sys.path.insert(0, str(GENERATOR))
from foreign_metrics import FOREIGN  # noqa: E402
from metric_table import Metric, family_of, label_values, read  # noqa: E402
from not_shown import NOT_SHOWN  # noqa: E402
from panel import names_in  # noqa: E402

__all__ = ["FOREIGN", "GENERATOR", "NOT_SHOWN", "Metric", "family_of", "label_values", "names_in", "read"]

RULES = CHART / "rules/forebay.yaml"
# Labels that Prometheus adds to the series of a node, and the bound of a bucket.
ADDED_LABELS = {"cluster", "namespace", "job", "instance", "pod", "le"}
Series = dict[str, list[float]]


def has_promtool() -> bool:
    """Whether there is a promtool; fails without one if FOREBAY_REQUIRE_PROMTOOL is set."""
    try:
        tool("promtool.sh", "FOREBAY_REQUIRE_PROMTOOL")
    except pytest.skip.Exception:
        return False
    return True


def promtool(*arguments: str | Path, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Runs promtool; skips without one, or fails with FOREBAY_REQUIRE_PROMTOOL set."""
    command = [tool("promtool.sh", "FOREBAY_REQUIRE_PROMTOOL"), *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=120)


def alerts(path: Path = RULES) -> list[dict[str, Any]]:
    """The rules of all groups."""
    return [rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


def dashboards() -> dict[str, dict[str, Any]]:
    """The dashboards by the name of their file."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(CHART.glob("dashboards/*.json"))}


def panels(dashboard: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The panels of all rows, open and closed."""
    found: list[dict[str, Any]] = []
    for panel in dashboard["panels"]:
        found += panel["panels"] if panel["type"] == "row" else [panel]
    return found


def expressions() -> dict[str, str]:
    """Each expression of a panel, without variables: all nodes of all clusters."""
    found = {}
    for name, dashboard in dashboards().items():
        for panel in panels(dashboard):
            for target in panel["targets"]:
                expr = target["expr"].replace("$__rate_interval", "5m").replace("$__range", "1h")
                expr = re.sub(r'"\$\w+"', '".*"', expr)
                found[f"{name}: {panel['title']}: {target['refId']}"] = expr
    assert not [expr for expr in found.values() if "$" in expr]
    return found


def without_samples(named: Mapping[str, str], series: Series, folder: Path) -> set[str]:
    """The names of the expressions that have no sample for series with a value each minute."""
    names = list(named)
    # promtool compares values that a test expects: whether there is a sample is such a value. The number at
    # the end names the expression in the report.
    tests = [
        {
            "expr": f"(count({named[name]}) > bool 0) + 0 * {number}",
            "eval_time": f"{max(map(len, series.values())) - 1}m",
            "exp_samples": [{"labels": "{}", "value": 1}],
        }
        for number, name in enumerate(names)
    ]
    case = {
        "interval": "1m",
        "input_series": [{"series": s, "values": " ".join(map(repr, v))} for s, v in series.items()],
        "promql_expr_test": tests,
    }
    file = folder / "expressions.yaml"
    file.write_text(json.dumps({"evaluation_interval": "1m", "tests": [case]}))
    done = promtool("test", "rules", file)
    report = done.stdout + done.stderr
    found = {names[int(number)] for number in re.findall(r'\+ 0 \* (\d+)"', report)}
    assert (done.returncode == 0) == (not found), report[-3000:]
    return found


def series_name(name: str, labels: Mapping[str, str]) -> str:
    """A series as expressions name it."""
    return name + "{" + ",".join(f"{label}={json.dumps(value)}" for label, value in labels.items()) + "}"


def metrics_in(exprs: Iterable[str]) -> set[str]:
    """The metrics that expressions name; fails for a name that neither nodes nor others export."""
    known = {**FOREIGN, **read()}
    found = set()
    for expr in exprs:
        for name in names_in(expr):
            metric = family_of(name, known)
            assert metric, f"no metric {name}: {expr}"
            found.add(metric.name)
    return found
