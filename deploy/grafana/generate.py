#!/usr/bin/env python3
"""Writes the Grafana dashboards of deploy/helm/forebay/dashboards from the tables beside this file and from
docs/metrics.md. `make docs` runs it.

`--check` changes nothing and fails if a file is not up to date. Needs only the standard library.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import cluster_dashboard
import kubernetes_dashboard
import metric_table
import training_feed_dashboard
from dashboard import dashboard_json
from foreign_metrics import FOREIGN

OUTPUT = Path(__file__).resolve().parents[1] / "helm/forebay/dashboards"
DASHBOARDS = (
    cluster_dashboard.DASHBOARD,
    training_feed_dashboard.DASHBOARD,
    kubernetes_dashboard.DASHBOARD,
)


def files() -> dict[Path, str]:
    """The text of each file."""
    metrics = {**FOREIGN, **metric_table.read()}
    return {
        OUTPUT / f"{d.uid}.json": json.dumps(dashboard_json(d, metrics), indent=1, ensure_ascii=False) + "\n"
        for d in DASHBOARDS
    }


def main() -> int:
    wanted = files()
    stale = [path for path, text in wanted.items() if not path.is_file() or path.read_text("utf-8") != text]
    # A dashboard that was renamed leaves no file behind.
    stale += [path for path in OUTPUT.glob("*.json") if path not in wanted]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(
                f"generate: {path.name} is out of date; run python3 deploy/grafana/generate.py",
                file=sys.stderr,
            )
        return 1 if stale else 0
    OUTPUT.mkdir(exist_ok=True)
    for path in stale:
        if path in wanted:
            path.write_text(wanted[path], encoding="utf-8")
        else:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
