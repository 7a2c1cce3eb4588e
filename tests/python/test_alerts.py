"""The alerts: promtool takes the rules and their tests, and each has its page and both kinds of tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import REPOSITORY
from forebay_chart import CHART, NAMESPACE, manifests, of_kind
from forebay_promtool import RULES, alerts, metrics_in, promtool

TESTS = sorted((REPOSITORY / "tests/alerts").glob("*.yaml"))
RUNBOOKS = REPOSITORY / "docs/runbooks.md"
SECTIONS = ["What it means", "How to look", "What to do"]
FIRING = re.compile(r'ALERTS\{alertname="(\w+)",alertstate="firing"\}')


def test_promtool_finds_no_fault_with_the_rules() -> None:
    done = promtool("check", "rules", RULES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(alerts())} rules found" in done.stdout


def test_alerts_ask_for_metrics_that_exist() -> None:
    assert metrics_in(rule["expr"] for rule in alerts())


@pytest.mark.parametrize("file", TESTS, ids=lambda file: file.stem)
def test_alerts_fire_when_they_should_and_not_otherwise(file: Path) -> None:
    done = promtool("test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def expectations() -> dict[str, list[list[str]]]:
    """The labels of the firing alerts that each test expects, by alert."""
    found: dict[str, list[list[str]]] = {}
    for file in TESTS:
        for case in yaml.safe_load(file.read_text())["tests"]:
            alert = case["name"].split(":")[0]
            for test in case["promql_expr_test"]:
                name = FIRING.fullmatch(test["expr"])
                assert name and name[1] == alert, case["name"]
                found.setdefault(alert, []).append([s["labels"] for s in test["exp_samples"]])
    return found


def test_every_alert_has_tests_where_it_fires_and_where_it_does_not() -> None:
    expected = expectations()
    assert expected.keys() == {rule["alert"] for rule in alerts()}
    for alert, samples in expected.items():
        assert any(samples), f"{alert} fires in no test"
        assert not all(samples), f"{alert} fires in all tests"


def test_texts_of_alerts_name_labels_that_the_alerts_have() -> None:
    expected = expectations()
    for rule in alerts():
        texts = " ".join(rule["annotations"].values())
        for samples in filter(None, expected[rule["alert"]]):
            for labels in samples:
                known = set(re.findall(r'(\w+)="', labels))
                assert set(re.findall(r"\$labels\.(\w+)", texts)) <= known, rule["alert"]


def test_every_alert_has_a_severity_and_texts_and_a_page() -> None:
    text = RUNBOOKS.read_text()
    pages = dict(re.findall(r"(?ms)^## (Forebay\w+)$(.*?)(?=^## |\Z)", text))
    assert list(pages) == [rule["alert"] for rule in alerts()], "one section for each alert, in their order"
    for name, page in pages.items():
        assert re.findall(r"(?m)^\*\*([\w ]+)\.\*\*", page) == SECTIONS, name
    for rule in alerts():
        assert rule["labels"]["severity"] in ("critical", "warning")
        notes = rule["annotations"]
        assert notes.keys() == {"summary", "description", "runbook_url"}, rule["alert"]
        assert not notes["summary"].endswith(".") and notes["description"].endswith(".")
        assert notes["runbook_url"] == f"docs/runbooks.md#{rule['alert'].lower()}"


def rules_of(values: str) -> list[dict[str, Any]]:
    (document,) = of_kind(manifests(CHART / f"ci/{values}-values.yaml"), "PrometheusRule")
    return [rule for group in document["spec"]["groups"] for rule in group["rules"]]


def test_the_chart_has_the_alerts_of_its_own_release(tmp_path: Path) -> None:
    rules = rules_of("all-on")
    assert [rule["alert"] for rule in rules] == [rule["alert"] for rule in alerts()]
    documents = manifests(CHART / "ci/all-on-values.yaml")
    services = {s["metadata"]["name"] for s in of_kind(documents, "Service")}
    for rule in rules:
        selectors = re.findall(r"\b(?:forebay_\w+|process_\w+|up)\{([^}]*)\}", rule["expr"])
        assert selectors
        for selector in selectors:
            assert f'namespace="{NAMESPACE}",job' in selector, rule["alert"]
            (job,) = re.findall(r'job=~?"([^"]+)"', selector)
            assert any(re.fullmatch(job, service) for service in services), job
        url = rule["annotations"]["runbook_url"]
        assert url == f"https://docs.example.com/forebay/runbooks.html#{rule['alert'].lower()}"
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "chart", "rules": rules}]}))
    done = promtool("check", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_nodes_are_named_by_their_pods_in_the_label_instance() -> None:
    for monitor in of_kind(manifests(CHART / "ci/all-on-values.yaml"), "ServiceMonitor"):
        for endpoint in monitor["spec"]["endpoints"]:
            (rule,) = endpoint["relabelings"]
            assert rule == {"sourceLabels": ["__meta_kubernetes_pod_name"], "targetLabel": "instance"}
