"""The alerts of a live cluster with faults, as a real Prometheus server evaluates them."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
import requests
import yaml
from forebay_chart import NAMESPACE, tool
from forebay_clouds import Minio, answers, stop
from forebay_cluster import Cluster, free_ports, wait_until
from forebay_promtool import RULES

# The rules wait for minutes until they fire; here a minute is a second.
SECONDS_PER_MINUTE = 1
FIRING_DEADLINE_S = 60.0
UNITS = {"s": 1 / 60, "m": 1.0, "h": 60.0}


def hurried_rules() -> dict[str, object]:
    """The rules, with their waiting times shortened; their expressions are unchanged."""
    rules = yaml.safe_load(RULES.read_text())
    for group in rules["groups"]:
        group.pop("interval", None)
        for rule in group["rules"]:
            if "for" in rule:
                number, unit = re.fullmatch(r"(\d+)([smh])", rule["for"]).groups()  # type: ignore[union-attr]
                rule["for"] = f"{max(1, round(int(number) * UNITS[unit] * SECONDS_PER_MINUTE))}s"
    return dict(rules)


class Prometheus:
    """A Prometheus server that scrapes the nodes of a cluster and evaluates the rules."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.address = f"127.0.0.1:{free_ports(1)}"
        self.log = folder / "prometheus.log"
        (folder / "rules.yml").write_text(yaml.safe_dump(hurried_rules()))
        jobs = {"forebay-gateway": cluster.info["gateways"], "forebay-target": cluster.targets}
        scrapes = [
            {
                "job_name": job,
                "static_configs": [
                    {
                        "targets": [node["url"].removeprefix("http://") for node in nodes],
                        "labels": {"namespace": NAMESPACE},
                    }
                ],
            }
            for job, nodes in jobs.items()
        ]
        every = {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"}
        config = {"global": every, "rule_files": ["rules.yml"], "scrape_configs": scrapes}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        command = [tool("promtool.sh", "FOREBAY_REQUIRE_PROMTOOL", "prometheus")]
        command += [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}"]
        command += [f"--web.listen-address={self.address}"]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)
        wait_until(lambda: answers(f"http://{self.address}/-/ready"), f"Prometheus; see {self.log}", 30.0)

    def firing(self) -> set[str]:
        """The names of the alerts that fire now."""
        with urllib.request.urlopen(f"http://{self.address}/api/v1/alerts", timeout=10) as answer:
            found = json.load(answer)["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in found if alert["state"] == "firing"}

    def wait_for(self, *alerts: str, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Returns when all of these alerts fire; calls `meanwhile` again and again until then."""
        deadline = time.monotonic() + FIRING_DEADLINE_S
        while missing := set(alerts) - self.firing():
            assert time.monotonic() < deadline, f"no {missing}, only {self.firing()}"
            meanwhile()
            time.sleep(0.2)


class Link:
    """A TCP port that leads to an address until it is cut."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        self.open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.create_connection(self.address)
                self.open += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=_copy, args=(source, sink), daemon=True).start()

    def cut(self) -> None:
        """Ends all connections and refuses new ones."""
        self.listener.shutdown(socket.SHUT_RDWR)
        for end in (self.listener, *self.open):
            end.close()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError), closing(sink):
        while received := source.recv(1 << 16):
            sink.sendall(received)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def status_of(url: str, method: str = "GET", body: bytes | None = None) -> int:
    headers = {"Content-Type": "application/json"}
    return requests.request(method, url, data=body, headers=headers, timeout=30).status_code


def damage(folder: Path, payload: bytes) -> int:
    """Changes one byte of each copy of a payload on the disks below a folder; returns their number."""
    found = 0
    for path in sorted(folder.rglob("*")):
        if path.is_file() and (at := path.read_bytes().find(payload)) >= 0:
            with path.open("r+b") as file:
                file.seek(at + len(payload) // 2)
                file.write(bytes([payload[len(payload) // 2] ^ 1]))
            found += 1
    return found


def test_alerts_fire_during_faults_of_nodes_disks_and_clouds(
    tmp_path: Path, minio: Minio, stack: ExitStack
) -> None:
    host, port = minio.endpoint.removeprefix("http://").split(":")
    link = Link((host, int(port)))
    cloud, own = minio.new_bucket()
    own.put_object(Bucket=cloud, Key="o", Body=b"cold")
    env = {**minio.env, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{link.port}", "AWS_MAX_ATTEMPTS": "1"}
    (tmp_path / "cluster").mkdir()
    cluster = Cluster.start(tmp_path / "cluster", gateways=3, targets=3, env=env)
    stack.callback(cluster.process.wait)
    stack.callback(cluster.process.terminate)
    prometheus = Prometheus(tmp_path, cluster)
    stack.callback(stop, prometheus.process)
    objects = f"{cluster.endpoint}/v1/objects"

    # A healthy cluster with requests of all kinds raises none.
    create = json.dumps({"action": "create-bck"}).encode()
    assert status_of(f"{cluster.endpoint}/v1/buckets/own?provider=ais", "POST", create) == 200
    payloads = {f"o{n}": f"payload {n} ".encode() * 2000 for n in range(60)}
    for name, payload in payloads.items():
        assert status_of(f"{objects}/own/{name}?provider=ais", "PUT", payload) == 200
        assert status_of(f"{objects}/own/{name}?provider=ais") == 200
    assert status_of(f"{objects}/{cloud}/o?provider=aws") == 200
    wait_until(lambda: cluster.count("forebay_backend_requests_total") > 0, "the cloud was read")
    for _ in range(20):
        assert prometheus.firing() == set()
        status_of(f"{objects}/own/o0?provider=ais")

    # Damaged objects that have no other copy.
    for name, payload in payloads.items():
        assert damage(tmp_path / "cluster", payload) == 1
        assert status_of(f"{objects}/own/{name}?provider=ais") >= 500
    prometheus.wait_for("ForebayDataLost", "ForebayDamageRising")

    def read_damaged() -> None:
        for name in payloads:
            status_of(f"{objects}/own/{name}?provider=ais")

    prometheus.wait_for("ForebayRequestsFail", meanwhile=read_damaged)

    # The cloud is away.
    link.cut()
    assert status_of(f"{objects}/{cloud}/absent?provider=aws") >= 500
    prometheus.wait_for(
        "ForebayBackendFails", meanwhile=lambda: status_of(f"{objects}/{cloud}/absent?provider=aws")
    )

    target, gateway, other = cluster.targets[0]["id"], *(g["id"] for g in cluster.info["gateways"][1:])
    cluster.kill(target)
    prometheus.wait_for("ForebayTargetDown", "ForebayTargetDead")
    assert not prometheus.firing() & {"ForebayGatewayDown", "ForebayVoterMissing", "ForebayNoMajority"}

    cluster.kill(gateway)
    prometheus.wait_for("ForebayGatewayDown", "ForebayGatewayDead", "ForebayVoterMissing")
    assert not prometheus.firing() & {"ForebayNoMajority", "ForebayNoLeader"}

    # One of three gateways has no majority.
    cluster.kill(other)
    prometheus.wait_for("ForebayNoMajority", "ForebayNoLeader")
