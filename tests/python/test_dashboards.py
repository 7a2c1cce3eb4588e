"""The Grafana dashboards ask only for what nodes export, show all of it, and their queries have results."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import REPOSITORY, Cluster, Minio
from forebay_chart import CHART, manifests, of_kind
from forebay_cluster import metrics_of
from forebay_promtool import (
    ADDED_LABELS,
    FOREIGN,
    GENERATOR,
    NOT_SHOWN,
    RULES,
    Metric,
    Series,
    alerts,
    dashboards,
    expressions,
    family_of,
    label_values,
    metrics_in,
    panels,
    promtool,
    read,
    series_name,
    without_samples,
)
from forebay_s3 import client

MAX_DASHBOARD_BYTES = 500_000
PANEL_TYPES = {"stat", "timeseries", "heatmap", "table", "bargauge"}
SELECTOR = re.compile(r"\b([a-zA-Z_:][\w:]*)\{([^}]*)\}")
LABEL_LISTS = re.compile(r"\b(?:by|on|group_left) \(([^)]*)\)")


def test_the_dashboards_are_up_to_date() -> None:
    command = [sys.executable, str(GENERATOR / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(dashboards()) == 3


@pytest.mark.parametrize("name", sorted(dashboards()))
def test_grafana_reads_the_dashboard(name: str) -> None:
    dashboard = dashboards()[name]
    assert dashboard["uid"] == name
    assert dashboard["schemaVersion"] >= 41
    assert (CHART / f"dashboards/{name}.json").stat().st_size < MAX_DASHBOARD_BYTES
    shown = panels(dashboard)
    rows = [panel for panel in dashboard["panels"] if panel["type"] == "row"]
    ids = Counter(panel["id"] for panel in (*rows, *shown))
    assert max(ids.values()) == 1, "ids of panels are unique"
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    for panel in shown:
        assert panel["type"] in PANEL_TYPES, panel["title"]
        assert panel["title"] and panel["description"] and panel["targets"]
        unit = panel["options"].get("yAxis", {}).get("unit") or panel["fieldConfig"]["defaults"]["unit"]
        assert unit, panel["title"]
        for part in (panel, *panel["targets"]):
            assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        for target in panel["targets"]:
            used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval", "__range"}
            assert used <= variables.keys(), panel["title"]
    titles = Counter(panel["title"] for panel in shown)
    assert not [title for title, count in titles.items() if count > 1]


@pytest.mark.parametrize("name", sorted(dashboards()))
def test_no_panel_covers_another(name: str) -> None:
    dashboard = dashboards()[name]
    for group in (dashboard["panels"], *(p["panels"] for p in dashboard["panels"] if p["type"] == "row")):
        taken: set[tuple[int, int]] = set()
        for panel in group:
            at = panel["gridPos"]
            cells = set(
                itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"]))
            )
            assert at["x"] + at["w"] <= 24, panel["title"]
            assert not cells & taken, panel["title"]
            taken |= cells


def test_every_metric_is_shown_or_deliberately_not() -> None:
    known = read()
    shown = metrics_in(expressions().values()) | metrics_in(rule["expr"] for rule in alerts())
    assert sorted(known.keys() - shown - NOT_SHOWN.keys()) == []
    assert sorted(NOT_SHOWN.keys() - known.keys()) == [], "not_shown.py names what nodes do not export"
    assert sorted(NOT_SHOWN.keys() & shown) == [], "not_shown.py names what is shown"
    assert all(NOT_SHOWN.values())


def test_histograms_are_shown_as_quantiles_or_heatmaps() -> None:
    exprs = expressions().values()
    for metric in read().values():
        if metric.kind == "histogram":
            assert any(f"{metric.name}_bucket" in expr for expr in exprs), metric.name


def test_counters_are_shown_as_rates() -> None:
    known = {**FOREIGN, **read()}
    for name, expr in expressions().items():
        for metric, _ in SELECTOR.findall(expr):
            family = family_of(metric, known)
            if family and family.kind in ("counter", "histogram"):
                assert re.search(rf"\b(rate|increase)\({metric}\{{[^}}]*\}}\[", expr), f"{name}: {expr}"


def test_queries_name_only_labels_that_their_metrics_have() -> None:
    known = {**FOREIGN, **read()}
    legends = defaultdict(set)
    for name, dashboard in dashboards().items():
        for panel in panels(dashboard):
            for target in panel["targets"]:
                key = f"{name}: {panel['title']}: {target['refId']}"
                legends[key] = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
    for name, expr in [*expressions().items(), *((rule["alert"], rule["expr"]) for rule in alerts())]:
        labels = set(ADDED_LABELS)
        for metric, matchers in SELECTOR.findall(expr):
            family = family_of(metric, known)
            assert family, f"{name}: {metric}"
            own = {*family.labels, *ADDED_LABELS}
            assert set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"", matchers)) <= own, f"{name}: {expr}"
            labels |= own
        for listed in LABEL_LISTS.findall(expr):
            assert set(re.findall(r"\w+", listed)) <= labels, f"{name}: {expr}"
        assert legends[name] <= labels, name


def test_promtool_parses_every_query(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{n}", "expr": expr} for n, expr in enumerate(expressions().values())]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = promtool("check", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


# Values of labels that the page of metrics or another exporter leaves open.
OPEN_VALUES = {
    "alertname": ["ForebayNoLeader"],
    "alertstate": ["firing"],
    "class": ["a"],
    "resource": ["cpu", "memory"],
    "statefulset": ["a-gateway"],
}


def series_of_all_metrics() -> Series:
    """Series of a gateway and a target with each value of each label of each metric."""
    values = label_values()
    made: Series = {}

    def add(metric: Metric, role: str) -> None:
        node = {"namespace": "n", "job": f"forebay-{role}", "instance": f"{role}-1", "pod": f"{role}-1"}
        if metric.name.startswith(("kube", "container")):
            node |= {"job": "kubernetes", "instance": "10.0.0.9:8080", "container": role}
        own = [label for label in metric.labels if label not in node]
        choices = [OPEN_VALUES.get(k) or values.get((metric.name, k)) or [f"of-{role}"] for k in own]
        for chosen in itertools.product(*choices):
            labels = node | dict(zip(own, chosen, strict=True))
            if metric.kind == "gauge":
                made[series_name(metric.name, labels)] = [5.0] * 11
            elif metric.kind == "counter":
                made[series_name(metric.name, labels)] = [10.0 * n for n in range(11)]
            else:
                for le, share in {"0.1": 5.0, "1": 9.0, "+Inf": 10.0}.items():
                    bucket = series_name(f"{metric.name}_bucket", labels | {"le": le})
                    made[bucket] = [share * n for n in range(11)]
                for suffix in ("_count", "_sum"):
                    made[series_name(metric.name + suffix, labels)] = [10.0 * n for n in range(11)]

    for metric in {**FOREIGN, **read()}.values():
        for role in ("gateway", "target"):
            add(metric, role)
    return made


def test_every_query_has_a_result_where_all_metrics_exist(tmp_path: Path) -> None:
    assert without_samples(expressions(), series_of_all_metrics(), tmp_path) == set()


def test_a_query_without_a_result_is_found(tmp_path: Path) -> None:
    named = {"good": "a", "other label": 'a{x="2"}', "labels that do not match": "a / b"}
    series: Series = {'a{x="1"}': [1.0], 'b{y="1"}': [1.0]}
    assert without_samples(named, series, tmp_path) == named.keys() - {"good"}


def test_the_chart_has_a_config_map_for_each_dashboard() -> None:
    rendered = of_kind(manifests(CHART / "ci/all-on-values.yaml"), "ConfigMap")
    found: dict[str, str] = {}
    for document in rendered:
        if document["metadata"]["labels"].get("grafana_dashboard") == "1":
            assert document["metadata"]["annotations"]["grafana_folder"] == "Forebay"
            found |= document["data"]
    assert {name: json.loads(text) for name, text in found.items()} == {
        f"{name}.json": dashboard for name, dashboard in dashboards().items()
    }
    assert not [d for d in of_kind(manifests(), "ConfigMap") if "dashboard" in d["metadata"]["name"]]


def test_compose_provisions_prometheus_and_grafana(tmp_path: Path) -> None:
    compose = yaml.safe_load((REPOSITORY / "deploy/compose.yaml").read_text())
    services, configs = compose["services"], compose["configs"]

    def files(service: str) -> dict[str, Any]:
        """The configs of a service, by their paths in the container."""
        return {c["target"]: configs[c["source"]] for c in services[service]["configs"]}

    for name in ("prometheus", "grafana"):
        assert services[name]["profiles"] == ["monitoring"]
        assert all(port.startswith("127.0.0.1:") for port in services[name]["ports"])
    of_prometheus = files("prometheus")
    (rules,) = (path for path, config in of_prometheus.items() if "file" in config)
    assert (REPOSITORY / "deploy" / of_prometheus[rules]["file"]).resolve() == RULES
    text = of_prometheus["/etc/prometheus/prometheus.yml"]["content"]
    settings = yaml.safe_load(text)
    assert [str(Path(rules).parent / "*.yaml")] == settings["rule_files"]
    config = tmp_path / "prometheus.yml"
    config.write_text(text.replace(str(Path(rules).parent), str(RULES.parent)))
    done = promtool("check", "config", config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(alerts())} rules found" in done.stdout
    scraped = {}
    for job in settings["scrape_configs"]:
        scraped[job["job_name"]] = {t for group in job["static_configs"] for t in group["targets"]}
    nodes = {name: s["environment"] for name, s in services.items() if "forebay" in s["image"]}
    addresses = {e["FOREBAY_LISTEN__ADVERTISE"].removeprefix("http://") for e in nodes.values()}
    assert scraped["forebay-gateway"] | scraped["forebay-target"] == addresses
    # The selectors of the alerts name these jobs.
    assert set(re.findall(r'job="([\w-]+)"', RULES.read_text())) == scraped.keys()

    of_grafana = {path: yaml.safe_load(config["content"]) for path, config in files("grafana").items()}
    (source,) = of_grafana["/etc/grafana/provisioning/datasources/forebay.yaml"]["datasources"]
    assert source["type"] == "prometheus" and source["url"] == "http://prometheus:9090"
    (provider,) = of_grafana["/etc/grafana/provisioning/dashboards/forebay.yaml"]["providers"]
    (volume,) = services["grafana"]["volumes"]
    folder, path, mode = volume.split(":")
    assert (provider["options"]["path"], mode) == (path, "ro")
    assert (REPOSITORY / "deploy" / folder).resolve() == CHART / "dashboards"
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (REPOSITORY / "deploy" / folder / Path(home).relative_to(path)).is_file()


# Metrics that panels name and a small cluster does not export, each with the reason.
NOT_IN_A_SMALL_CLUSTER = {
    "forebay_evicted_bytes_total": "nothing is evicted",
    "forebay_tls_handshakes_total": "no TLS",
    "forebay_tls_certificate_expiry_seconds": "no TLS",
    "forebay_cluster_clock_offset_seconds": "exists after the first measurement",
    "forebay_disk_read_seconds": "the page cache has what was just written",
}
# Matchers of events that do not happen in it.
FAILURES = ('result=~"error|denied|unavailable"', 'result=~"busy|error|aborted"')
COLD_OBJECTS = 4
AUDIT = '[audit]\nfile = "audit.jsonl"\n'


def test_panels_show_a_live_cluster(
    start_cluster: Callable[..., Cluster], minio: Minio, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(AUDIT)
    cluster = start_cluster(targets=2, options=["--config", str(config)], env=minio.env)
    bucket, own = minio.new_bucket()
    for number in range(COLD_OBJECTS):
        own.put_object(Bucket=bucket, Key=f"cold{number}", Body=b"x" * 1000)
    pages: dict[str, list[dict[str, float]]] = defaultdict(list)
    nodes = [("gateway", node) for node in cluster.info["gateways"]]
    nodes += [("target", node) for node in cluster.targets]
    names: set[str] = set()
    # Counters have a rate from the second scrape on.
    for number in range(3):
        make_traffic(cluster.endpoint, bucket, number)
        for role, node in nodes:
            added = {"job": f"forebay-{role}", "instance": node["id"]}
            samples = metrics_of(node["url"])
            names |= {name for name, _, _ in samples}
            pages[node["id"]].append(
                {series_name(name, added | labels): value for name, labels, value in samples}
            )
    for _, node in nodes:
        with urllib.request.urlopen(f"{node['url']}/metrics", timeout=10) as answer:
            done = promtool("check", "metrics", text=answer.read().decode())
        assert done.returncode == 0, done.stdout + done.stderr

    known = read()
    exported = {family.name for name in names if (family := family_of(name, known))}
    named = {name: metrics_in([expr]) for name, expr in expressions().items()}
    asked = set().union(*named.values()) & known.keys()
    assert sorted(asked - exported - NOT_IN_A_SMALL_CLUSTER.keys()) == []

    series: Series = {}
    for scrapes in pages.values():
        for name in scrapes[-1]:
            # A series that appears late is as long as the others.
            series[name] = [scrape.get(name, 0.0) for scrape in scrapes]
    foreign_too = NOT_IN_A_SMALL_CLUSTER.keys() | FOREIGN.keys()
    shown = {
        name: expr
        for name, expr in expressions().items()
        if not named[name] & foreign_too and not any(failure in expr for failure in FAILURES)
    }
    assert without_samples(shown, series, tmp_path) == set()


def make_traffic(endpoint: str, cloud_bucket: str, number: int) -> None:
    """Writes, hits, misses, objects that do not exist, a batch, and a listing and reads of a cloud bucket."""
    # The other tests of this file need no build.
    import forebay

    s3 = client(f"{endpoint}/s3")
    own = forebay.Client(endpoint, timeout=20)
    fed = own.bucket("fed").create(exist_ok=True)
    names = [f"k{number}-{key}" for key in range(8)]
    for name in names:
        s3.put_object(Bucket="fed", Key=name, Body=b"x" * 1000)
        s3.get_object(Bucket="fed", Key=name)["Body"].read()
    with pytest.raises(s3.exceptions.NoSuchKey):
        s3.get_object(Bucket="fed", Key="none")
    urllib.request.urlopen(f"{endpoint}/v1/objects/fed/{names[0]}", timeout=20).read()
    assert len(own.batch(names, fed).get_all()) == len(names)
    cloud = own.bucket(cloud_bucket, "s3")
    assert len(list(cloud.list_objects())) == COLD_OBJECTS
    # The first read is a miss, the second a hit.
    for _ in range(2):
        assert len(cloud.object(f"cold{number}").get().read_all()) == 1000
