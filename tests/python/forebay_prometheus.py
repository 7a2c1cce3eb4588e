"""A Prometheus server that scrapes a cluster of a test and evaluates the alert rules in short times."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from forebay_chart import NAMESPACE, tool
from forebay_clouds import answers
from forebay_cluster import Cluster, free_ports, wait_until
from forebay_promtool import RULES

# The rules wait for minutes until they fire; in most tests a minute is a second.
SECONDS_PER_MINUTE = 1.0
SCRAPE_INTERVAL_S = 0.5
# A range has at least six samples of a series.
MIN_RANGE_S = 6 * SCRAPE_INTERVAL_S
FIRING_DEADLINE_S = 60.0
UNITS = {"s": 1 / 60, "m": 1.0, "h": 60.0}
DURATION = r"(\d+)([smh])"


def shortened_rules(seconds_per_minute: float = SECONDS_PER_MINUTE) -> dict[str, Any]:
    """The rules with shorter times; nothing else of them changes.

    A minute becomes this many seconds in the three places where a rule has times: its `for` (at least
    1 s), the ranges of its expression (at least MIN_RANGE_S) and its offsets. Numbers that expressions
    compare with, such as those of ages of certificates, stay as they are.
    """

    def short(number: str, unit: str, least_s: float) -> str:
        return f"{max(least_s, int(number) * UNITS[unit] * seconds_per_minute) * 1000:.0f}ms"

    def short_range(found: re.Match[str]) -> str:
        return f"[{short(found[1], found[2], MIN_RANGE_S)}]"

    def short_offset(found: re.Match[str]) -> str:
        return f"offset {short(found[1], found[2], 1)}"

    rules: dict[str, Any] = yaml.safe_load(RULES.read_text())
    for group in rules["groups"]:
        group.pop("interval", None)
        for rule in group["rules"]:
            if "for" in rule:
                number, unit = re.fullmatch(DURATION, rule["for"]).groups()  # type: ignore[union-attr]
                rule["for"] = short(number, unit, 1)
            expr = re.sub(rf"\[{DURATION}\]", short_range, rule["expr"])
            rule["expr"] = re.sub(rf"\boffset {DURATION}\b", short_offset, expr)
    return rules


class Prometheus:
    """A Prometheus server that scrapes the nodes of a cluster and evaluates the rules."""

    def __init__(self, folder: Path, cluster: Cluster, seconds_per_minute: float) -> None:
        self.address = f"127.0.0.1:{free_ports(1)}"
        self.log = folder / "prometheus.log"
        (folder / "rules.yml").write_text(yaml.safe_dump(shortened_rules(seconds_per_minute)))
        jobs = {"forebay-gateway": cluster.info["gateways"], "forebay-target": cluster.targets}
        scrapes = [
            {
                "job_name": job,
                "scheme": cluster.endpoint.split(":")[0],
                "tls_config": {"ca_file": cluster.info.get("ca", "")},
                "static_configs": [
                    {
                        "targets": [node["url"].split("//")[1] for node in nodes],
                        "labels": {"namespace": NAMESPACE},
                    }
                ],
            }
            for job, nodes in jobs.items()
        ]
        every = {
            name: f"{SCRAPE_INTERVAL_S * 1000:.0f}ms"
            for name in ("scrape_interval", "scrape_timeout", "evaluation_interval")
        }
        config = {"global": every, "rule_files": ["rules.yml"], "scrape_configs": scrapes}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        command = [tool("promtool.sh", "FOREBAY_REQUIRE_PROMTOOL", "prometheus")]
        command += [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}"]
        command += [f"--web.listen-address={self.address}"]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)
        wait_until(lambda: answers(f"http://{self.address}/-/ready"), f"Prometheus; see {self.log}", 30.0)
        count = sum(map(len, jobs.values()))
        wait_until(lambda: self.value("sum(up)") == count, f"all nodes scraped; see {self.log}", 30.0)

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://{self.address}/api/v1/{path}", timeout=10) as answer:
            return json.load(answer)["data"]

    def value(self, expr: str) -> float | None:
        """The value of an expression with one sample; None if it has none now."""
        result = self._get("query?" + urllib.parse.urlencode({"query": expr}))["result"]
        return float(result[0]["value"][1]) if result else None

    def firing(self) -> set[str]:
        """The names of the alerts that fire now."""
        found = self._get("alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in found if alert["state"] == "firing"}

    def wait_for(self, *alerts: str, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Returns when all of these alerts fire; calls `meanwhile` again and again until then."""
        deadline = time.monotonic() + FIRING_DEADLINE_S
        while missing := set(alerts) - self.firing():
            assert time.monotonic() < deadline, f"no {missing}, only {self.firing()}"
            meanwhile()
            time.sleep(0.2)
