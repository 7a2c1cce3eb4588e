"""A release of the chart whose pods run, with a client under constant load beside them.

tests/pods runs the manifests, and knows neither helm nor Forebay. Here is the rest: values, commands of the program,
clients, the load (forebay_pods_load.py), and the check that nothing was lost.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from forebay_chart import NAMESPACE, Manifest, manifests
from forebay_clouds import Minio
from forebay_cluster import REPOSITORY, binary, wait_until
from forebay_pods_load import content

sys.path.insert(0, str(REPOSITORY / "tests"))
from pods.cluster import Cluster, run, what_is_missing  # noqa: E402

__all__ = ["ENDPOINT", "PodsRun", "content", "next_program", "running_pods"]

ENDPOINT = f"http://rel-forebay.{NAMESPACE}:7400"
LOAD = REPOSITORY / "tests/python/forebay_pods_load.py"
# A second client waits for a target that restarts as long as the first one.
LOAD_STOP_DEADLINE_S = 90
FORWARDED_PORT = 9000


@dataclass
class PodsRun:
    """A release whose pods run.

    Attributes:
        values: The values of the last `apply`.
        client: The beginning of a command that runs beside the pods.
    """

    cluster: Cluster
    values: dict[str, Any]
    client: list[str]
    folder: Path
    cloud: str = ""
    loads: int = 0
    restarts: int = 0

    def render(self, **changes: Any) -> list[Manifest]:
        """The manifests of the values with changes: `target={"replicas": 4}`."""
        values = merged(self.values, changes)
        file = self.folder / f"values-{len(list(self.folder.glob('values-*')))}.yaml"
        file.write_text(yaml.safe_dump(values))
        return manifests(file)

    def upgrade(self, **changes: Any) -> None:
        """As `helm upgrade --wait`; the changes stay."""
        documents = self.render(**changes)
        self.values = merged(self.values, changes)
        self.cluster.apply(documents)
        self.cluster.wait_rolled_out()

    def roll_back(self, values: dict[str, Any]) -> None:
        """As `helm rollback --wait` to a release with these values."""
        self.values = values
        self.upgrade()

    def rollout_restart(self) -> None:
        """As `kubectl rollout restart` of both StatefulSets."""
        self.restarts += 1
        annotations = {"podAnnotations": {"kubectl.kubernetes.io/restartedAt": str(self.restarts)}}
        self.upgrade(gateway=annotations, target=annotations)

    def write(self, uri: str, count: int, copies: int) -> None:
        """Creates a native bucket with objects `first/0` and so on."""
        self.forebay("mb", uri)
        self.forebay("bucket", "set", uri, f"copies={copies}")
        code = f"bucket, _ = client.bucket_of({uri!r})\n"
        code += f"bucket.put_many((f'first/{{n}}', content(f'first/{{n}}')) for n in range({count}))"
        self.python(code)

    def objects_of(self, node: str) -> int:
        """The number of objects that a target has."""
        nodes = json.loads(self.forebay("cluster", "info", "-o", "json"))["nodes"]
        return next(int(n["usage"]["objects"]) for n in nodes if n["id"] == node)

    def forebay(self, *words: str) -> str:
        """Runs the program as `kubectl exec` in the first gateway does; returns its output."""
        done = self.cluster.pod("rel-forebay-gateway-0").container.exec(["/usr/local/bin/forebay", *words])
        assert done.returncode == 0, f"forebay {' '.join(words)}: {done.stderr}"
        return done.stdout

    def python(self, code: str, *, client: list[str] | None = None, endpoint: str = ENDPOINT) -> str:
        """Runs a piece of Python with `client`, one of the Python client's, and returns what it prints."""
        script = f"import sys, forebay\nsys.path.insert(0, {str(LOAD.parent)!r})\nfrom forebay_pods_load import content\n"
        script += f"client = forebay.Client({endpoint!r})\n{code}"
        done = run([*(client or self.client), sys.executable, "-c", script])
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def endpoint_outside(self) -> str:
        """The gateways for clients outside."""
        return f"http://{self.cluster.network.machine_outside}:30740"

    def python_outside(self, code: str) -> str:
        """As `python`, with a client outside."""
        outside = self.cluster.client_outside()
        return self.python(code, client=outside, endpoint=self.endpoint_outside)

    @contextlib.contextmanager
    def under_load(self, *buckets: str) -> Iterator[None]:
        """Runs the load beside a block. Afterwards no request may have failed, and no object be lost."""
        self.loads += 1
        report = self.folder / f"load-{self.loads}.json"
        command = [*self.client, sys.executable, str(LOAD), ENDPOINT, str(report), *buckets]
        with (self.folder / f"load-{self.loads}.log").open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            wait_until(report.exists, f"the load reports; log in {self.folder}", 30)
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(LOAD_STOP_DEADLINE_S)
        figures = json.loads(report.read_text())
        print(f"load: {figures['requests']} requests, slowest {figures['slowest_s']:.1f} s")
        assert figures["requests"] > 100
        assert not figures["failed"], f"{len(figures['failed'])} failed: {figures['failed'][:3]}"
        for uri, names in figures["names"].items():
            self.assert_holds(uri, names)

    def assert_holds(self, uri: str, names: list[str]) -> None:
        """Reads all objects of a bucket and compares them with what was written."""
        file = self.folder / "names.json"
        file.write_text(json.dumps(names))
        code = f"import json\nbucket, _ = client.bucket_of({uri!r})\n"
        code += f"names = json.load(open({str(file)!r}))\n"
        code += "lost = [n for n, d in zip(names, bucket.get_many(names, as_bytes=True)) if d != content(n)]\n"
        code += "missing = set(names) - {n for n, _ in bucket.list_snapshot()}\n"
        code += "print(len(lost), len(missing))"
        assert self.python(code).split() == ["0", "0"], f"objects of {uri} are lost"


def merged(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    result = dict(values)
    for key, value in changes.items():
        before = result.get(key)
        both = isinstance(value, dict) and isinstance(before, dict)
        result[key] = merged(before, value) if both else value  # type: ignore[arg-type]
    return result


@contextlib.contextmanager
def running_pods(
    folder: Path, values: dict[str, Any], s3: Minio | None = None, outside: bool = False
) -> Iterator[PodsRun]:
    """Installs the chart, and removes all of it at the end. `outside`: with ports for clients outside."""
    if missing := what_is_missing():
        pytest.fail(missing)
    cluster = Cluster(folder / "cluster", binary())
    try:
        if not cluster.image.is_static:
            print("pods: the program needs shared libraries of this machine; FOREBAY_BIN names a static one")
        if s3:
            port = urllib.parse.urlparse(s3.endpoint).port
            assert port
            cluster.add_secret("s3", s3.env)
            endpoint = f"http://{cluster.forward(FORWARDED_PORT, port)}"
            values = merged(values, {"backends": {"s3": {"endpoint": endpoint}}})
        if outside:
            machine = cluster.network.machine_outside
            clients = [{"ipBlock": {"cidr": f"{machine}/24"}}]
            external = {"enabled": True, "host": machine, "clients": clients}
            values = merged(values, {"external": external})
        pods = PodsRun(cluster, values, cluster.new_client("client"), folder)
        pods.upgrade()
        yield pods
    finally:
        cluster.close()
    left = cluster.leftovers()
    assert not left, left


def next_program() -> Path:
    """The program of an upgrade: FOREBAY_PODS_NEXT, or the same one again."""
    return Path(os.environ.get("FOREBAY_PODS_NEXT") or binary())
