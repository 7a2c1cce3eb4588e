"""The chart, the unit and the compose file fit the program that they run: real processes start
from what helm renders, and what cannot work is refused before anything is installed."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from botocore.exceptions import ClientError
from conftest import REPOSITORY, free_ports, wait_until
from forebay_chart import (
    CHART,
    Manifest,
    Release,
    environment_of,
    have,
    helm,
    manifests,
    of_kind,
    one,
    render,
    running,
    tool,
    values_files,
)
from forebay_cluster import START_DEADLINE_S
from forebay_s3 import client

SETS = [None, *values_files()]
KUBERNETES = ["1.28", "1.34"]
BAD_CONFIG, PORT_IN_USE = 2, 10
# Files of credentials whose form a target checks when it starts.
CREDENTIALS = {
    "s3 credentials_file": "[archive]\naws_access_key_id = a\naws_secret_access_key = b\n",
    "gcs credentials_file": json.dumps(
        {"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "t"}
    ),
    "azure sas_file": "sv=2024-11-04&sr=c&sp=rl&sig=c2VjcmV0\n",
}


def name_of(values: object) -> str:
    return values.stem if isinstance(values, Path) else str(values or "default")


each_set = pytest.mark.parametrize("values", SETS, ids=name_of)


def containers(documents: list[Manifest]) -> Iterator[tuple[Manifest, Manifest]]:
    """Each StatefulSet with the container of its node."""
    for stateful in of_kind(documents, "StatefulSet"):
        yield stateful, stateful["spec"]["template"]["spec"]["containers"][0]


@each_set
def test_the_chart_lints_and_renders_the_same_twice(values: Path | None) -> None:
    done = helm("lint", "--strict", CHART, *(["--values", str(values)] if values else []))
    assert done.returncode == 0, done.stdout
    again = render.__wrapped__(values)
    assert again == render(values)


@pytest.mark.parametrize("kubernetes", KUBERNETES)
def test_kubernetes_knows_every_field(kubernetes: str, tmp_path: Path) -> None:
    validate = tool("kubernetes_validate.sh", "FOREBAY_REQUIRE_HELM")
    # Half of the manifests are the same in several sets.
    every = {json.dumps(d, sort_keys=True): d for v in SETS for d in manifests(v, kubernetes)}
    rendered = tmp_path / "rendered.yaml"
    rendered.write_text(yaml.safe_dump_all(every.values()))
    done = subprocess.run(
        [validate, "-k", kubernetes, "--strict", rendered],
        capture_output=True,
        text=True,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    # A resource without a schema would pass unseen; these are the only ones.
    custom = {"ServiceMonitor", "PrometheusRule", "Certificate"}
    assert said.count("passed for resource") == sum(d["kind"] not in custom for d in every.values())


@each_set
def test_what_belongs_together_names_each_other(values: Path | None) -> None:
    documents = manifests(values)
    assert one_of_each(documents)
    services = of_kind(documents, "Service")
    pods = {s["metadata"]["name"]: s["spec"]["template"] for s in of_kind(documents, "StatefulSet")}
    for stateful, container in containers(documents):
        spec, name = stateful["spec"], stateful["metadata"]["name"]
        assert spec["selector"]["matchLabels"].items() <= labels(spec["template"]).items()
        headless = one(documents, "Service", spec["serviceName"])
        assert headless["spec"]["clusterIP"] == "None"
        assert headless["spec"]["publishNotReadyAddresses"] is True
        claims = spec.get("volumeClaimTemplates", [])
        volumes = {v["name"] for v in spec["template"]["spec"]["volumes"]}
        volumes |= {c["metadata"]["name"] for c in claims}
        assert {m["name"] for m in container["volumeMounts"]} <= volumes, name
        assert "/healthz" == container["livenessProbe"]["httpGet"]["path"]
        # Nothing in a claim may change from one version of the chart to the next.
        for claim in claims:
            assert "version" not in " ".join(labels(claim)), name
    for service in services:
        selector = dict(service["spec"]["selector"])
        # Kubernetes labels each pod of a StatefulSet with its name.
        pod = selector.pop("statefulset.kubernetes.io/pod-name", None)
        chosen = [t for t in pods.values() if matches(selector, t)]
        assert pod is None or pod.rsplit("-", 1)[0] in pods
        assert len(chosen) == 1, service["metadata"]["name"]
        named = {p["name"] for p in chosen[0]["spec"]["containers"][0]["ports"]}
        assert {p["targetPort"] for p in service["spec"]["ports"]} <= named
    for kind in ("PodDisruptionBudget", "NetworkPolicy"):
        for document in of_kind(documents, kind):
            spec = document["spec"]
            selector = (spec.get("selector") or spec.get("podSelector"))["matchLabels"]
            assert sum(matches(selector, t) for t in pods.values()) == 1, document["metadata"]
    for monitor in of_kind(documents, "ServiceMonitor"):
        chosen = [s for s in services if matches(monitor["spec"]["selector"]["matchLabels"], s)]
        assert len(chosen) == 1, "each pod is scraped once"


def labels(document: Manifest) -> dict[str, str]:
    return document["metadata"].get("labels") or {}


def matches(selector: dict[str, str], document: Manifest) -> bool:
    return selector.items() <= labels(document).items()


def one_of_each(documents: list[Manifest]) -> bool:
    keys = [(d["kind"], d["metadata"]["name"]) for d in documents]
    return len(set(keys)) == len(keys)


@each_set
def test_the_program_takes_the_settings_and_the_environment(
    values: Path | None, forebay_bin: Path, tmp_path: Path, node_certificate: dict[str, str]
) -> None:
    documents = manifests(values)
    for name, text in node_certificate.items():
        (tmp_path / name).touch(0o640)
        (tmp_path / name).write_text(text)
    secret = tmp_path / "secret"
    secret.write_text("a text that all nodes share\n")
    secret.chmod(0o600)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for stateful, container in containers(documents):
            fields = {
                "metadata.name": f"{stateful['metadata']['name']}-0",
                "metadata.labels['topology.kubernetes.io/zone']": "zone-a",
            }
            role = container["name"]
            config = one(documents, "ConfigMap", stateful["metadata"]["name"])
            file = tmp_path / f"{role}.toml"
            file.write_text(with_credentials(config["data"][file.name], tmp_path))
            env = environment_of(container, fields)
            env = {k: v.replace("/run/secrets/tls", str(tmp_path)) for k, v in env.items()}
            env["FOREBAY_LISTEN__HTTP"] = f"127.0.0.1:{taken.getsockname()[1]}"

            def outcome(**more: str) -> int:
                return subprocess.run(
                    [forebay_bin, role, "--config", file],  # noqa: B023
                    env={**os.environ, **env, **more},  # noqa: B023
                    capture_output=True,
                    timeout=30,
                ).returncode

            # A taken port is what a node finds out after all its settings were understood.
            assert outcome() == PORT_IN_USE
            assert outcome(FOREBAY_NODE__NO_SUCH="1") == BAD_CONFIG
            settings = tomllib.loads(config["data"][file.name])
            assert len(env["FOREBAY_NODE__ID"]) >= 8
            if role == "gateway":
                gateways = settings["cluster"]["gateways"]
                assert len(gateways) == stateful["spec"]["replicas"]
                assert env["FOREBAY_LISTEN__ADVERTISE"] == gateways[0]


def with_credentials(settings: str, folder: Path) -> str:
    """The settings with the credentials of accounts of clouds in a folder, where they are private files."""
    here = settings.replace("/run/secrets/clouds/", f"{folder}/clouds/")
    for account in tomllib.loads(here).get("cloud", []):
        for key in account.keys() & {"secret_key_file", "credentials_file", "sas_file"}:
            file = Path(account[key])
            file.parent.mkdir(parents=True)
            file.write_text(CREDENTIALS.get(f"{account['provider']} {key}", "c2VjcmV0\n"))
            file.chmod(0o600)
    return here


def test_both_roles_keep_the_audit_log_that_the_values_name(tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("audit: {file: audit.jsonl, maxSize: 8MiB, keep: 3}\n")
    documents = manifests(values)
    for stateful, container in containers(documents):
        config = one(documents, "ConfigMap", stateful["metadata"]["name"])
        settings = tomllib.loads(config["data"][f"{container['name']}.toml"])
        assert settings["audit"] == {
            "file": "audit.jsonl",
            "max_size": "8MiB",
            "keep": 3,
            "url": "",
        }


REFUSED = {
    "bad-azure-key-and-identity": "backends.azure.workloadIdentity",
    "bad-azure-without-account": "backends.azure.account",
    "bad-batch-memory": "limits.batchMemory (2GiB)",
    "bad-cert-manager-without-issuer": "tls.certManager.issuerRef.name",
    "bad-chown-of-claims": "target.chownDisks.enabled",
    "bad-cloud-key-without-secret": "secretKeyKey needs existingSecret",
    "bad-cloud-network-as-server": "/target/clouds/0/endpoints/0",
    "bad-cloud-profile-and-key": "more than one credential",
    "bad-cloud-region-of-azure": "region is no setting of the provider azure",
    "bad-cloud-secret-as-value": "secretKey",
    "bad-cloud-secret-without-access-key": "accessKey and secretKeyKey belong together",
    "bad-cloud-secret-without-key": "existingSecret needs one of",
    "bad-cloud-twice": 'target.clouds "prod" is there twice',
    "bad-cloud-two-credentials": "more than one credential",
    "bad-cloud-unknown-provider": "/target/clouds/0/provider",
    "bad-cloud-without-storage-account": "needs storageAccount",
    "bad-container-name": "target.sidecars",
    "bad-container-without-image": "/gateway/sidecars/0",
    "bad-disk-size": "/target/disks/0/size",
    "bad-endpoint": "/backends/s3/endpoint",
    "bad-even-gateways": "/gateway/replicas",
    "bad-external-name-with-dots": "external.targetHost (a.{ordinal}.example.com)",
    "bad-external-one-name": "external.targetHost (cache.example.com)",
    "bad-external-ports": "external.nodePorts.gateway (30752)",
    "bad-external-type": "/external/type",
    "bad-external-without-clients": "external.clients",
    "bad-external-without-host": "external.host",
    "bad-forgetful-gateways": "gateway.persistence.enabled",
    "bad-grace": "terminationGracePeriodSeconds",
    "bad-grace-of-drain": "target.drainTimeoutSeconds (3600)",
    "bad-hostpath-without-path": "target.disks[0].path",
    "bad-http-without-tls": "tls.http",
    "bad-no-disks": "/target/disks",
    "bad-session-token-without-secret": "backends.s3.sessionTokenKey",
    "bad-two-ca-bundles": "caBundle.configMap and caBundle.secret",
    "bad-type": "/gateway/replicas",
    "bad-unknown-backend": "swift",
    "bad-unknown-key": "replica",
    "bad-watermarks": "cache.low",
}


def test_values_that_cannot_work_are_refused_by_name() -> None:
    files = {f.stem: f for f in CHART.glob("ci/bad-*.yaml")}
    assert files.keys() == REFUSED.keys()
    for name, file in files.items():
        done = helm("template", "rel", CHART, "--kube-version", "1.34", "--values", file)
        assert done.returncode != 0, f"{name} was rendered"
        assert REFUSED[name] in done.stderr, done.stderr
    done = helm("template", "rel", CHART, "--kube-version", "1.26")
    assert "kubeVersion" in done.stderr


def test_the_schema_is_closed_and_knows_exactly_the_values() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    def walk(part: dict[str, Any], path: str) -> None:
        if "properties" in part:
            assert part["additionalProperties"] is False, path
        for key, below in part.items():
            if isinstance(below, dict):
                walk(below, f"{path}/{key}")

    def compare(part: dict[str, Any], default: Any, path: str) -> None:
        known = part.get("properties")
        if known and isinstance(default, dict):
            assert known.keys() - {"global"} == default.keys(), path
            for key in default:
                compare(known[key], default[key], f"{path}.{key}")

    walk(schema, "")
    compare(schema, values, "values")


def test_the_table_of_settings_is_that_of_the_values() -> None:
    script = REPOSITORY / "ci/chart_readme.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_chart_and_program_have_one_version() -> None:
    cargo = tomllib.loads((REPOSITORY / "Cargo.toml").read_text())
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = cargo["workspace"]["package"]["version"]
    assert chart["version"] == chart["appVersion"] == version


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """The chart with its own values, as three gateways and three targets of this machine."""
    with running(manifests(), tmp_path_factory.mktemp("release")) as pods:
        yield pods


def test_what_is_rendered_becomes_a_cluster(release: Release) -> None:
    assert {pod.role for pod in release.pods} == {"gateway", "target"}
    for pod in release.pods:
        assert pod.answers("startupProbe"), pod.name
        assert pod.answers("livenessProbe"), pod.name
    # By name, by URL: clients get the names of the pods.
    known = {(node["id"], node["url"]) for node in nodes_of(release)}
    assert known == {(pod.name, pod.here) for pod in release.pods}
    # The report of a target arrives with its first heartbeat.
    budget = 100 * 1024**3 * 85 // 100
    wait_until(lambda: budgets(release) == {budget}, f"every target has a budget of {budget}")


def budgets(release: Release) -> set[int]:
    return {node["usage"]["budget"] for node in nodes_of(release) if node["role"] == "target"}


def nodes_of(release: Release) -> list[dict[str, Any]]:
    gateway = release.pods[0]
    done = subprocess.run(
        [gateway.command[0], "cluster", "info", "-o", "json"],
        env={**os.environ, "FOREBAY_ENDPOINT": gateway.here},
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout)["nodes"])


def test_helm_test_passes_on_it(release: Release) -> None:
    done = release.run_test_pod()
    for name, step in done.items():
        assert step.returncode == 0, f"{name}: {step.stdout}{step.stderr}"
    assert done["get-range"].stdout == "forebay"
    assert list(done)[-1] == "remove-bucket"


def test_a_pod_that_is_terminated_stops_in_time(release: Release) -> None:
    pod = release.pods[-1]
    assert pod.process
    pod.process.terminate()
    assert pod.process.wait(30) == 0
    assert not pod.answers("livenessProbe")
    release.pods.remove(pod)


def test_keys_of_s3_reach_gateways_and_targets_alike(tmp_path: Path) -> None:
    key = {"access": "operator", "secret": 'a "quoted" \\ secret'}
    values = tmp_path / "values.yaml"
    values.write_text(
        yaml.safe_dump({"s3": {"keys": [key]}, "gateway": {"replicas": 1}, "target": {"replicas": 2}})
    )
    with running(manifests(values), tmp_path) as pods:
        endpoint = f"{pods.pods[0].here}/s3"
        s3 = client(endpoint, key["secret"], access=key["access"])
        s3.create_bucket(Bucket="chart")
        for number in range(6):
            s3.put_object(Bucket="chart", Key=f"k{number}", Body=b"forebay")
            assert s3.get_object(Bucket="chart", Key=f"k{number}")["Body"].read() == b"forebay"
        # No key that the program itself brings along.
        built_in = client(endpoint)
        for call in (built_in.list_buckets, lambda: built_in.get_object(Bucket="chart", Key="k1")):
            with pytest.raises(ClientError, match="InvalidAccessKeyId"):
                call()


def test_a_secret_of_ones_own_gives_every_node_its_keys_of_s3(tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"s3": {"existingSecret": "mine", "existingSecretKey": "list"}}))
    for _, container in containers(manifests(values)):
        (entry,) = [e for e in container["env"] if e["name"] == "FOREBAY_S3__KEYS"]
        assert entry["valueFrom"] == {"secretKeyRef": {"name": "mine", "key": "list"}}
    for _, container in containers(manifests()):
        assert "FOREBAY_S3__KEYS" not in {e["name"] for e in container["env"]}


def test_the_unit_runs_the_program(forebay_bin: Path, tmp_path: Path) -> None:
    unit = REPOSITORY / "deploy/systemd/forebay.service"
    text = unit.read_text()
    line = re.search(r"(?m)^ExecStart=(.+(?:\\\n.+)*)$", text)
    assert line
    port = free_ports(2)
    words = [str(forebay_bin), *line[1].replace("\\\n", " ").split()[1:]]
    folder = words[words.index("--dir") + 1]
    assert folder.removeprefix("/var/lib/") in re.findall(r"(?m)^StateDirectory=(.+)$", text)
    words[words.index("--dir") + 1] = str(tmp_path / "data")
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen([*words, "--port", str(port)], stdout=output, stderr=output)
    try:
        wait_until(
            lambda: serves(port) or process.poll() is not None,
            f"the unit's command serves; log in {log}",
            START_DEADLINE_S,
        )
        assert process.poll() is None, log.read_text()
    finally:
        process.terminate()
        process.wait(30)
    assert process.returncode == 0, log.read_text()


def serves(port: int) -> bool:
    """Whether the node is in its cluster. Before that a signal may find nobody who handles it."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def test_systemd_finds_no_fault_with_the_units(forebay_bin: Path, tmp_path: Path) -> None:
    analyze = have("systemd-analyze")
    copies = []
    for unit in (REPOSITORY / "deploy/systemd").glob("*.service"):
        copy = tmp_path / unit.name.replace("@", "@gateway")
        copy.write_text(unit.read_text().replace("/usr/local/bin/forebay", str(forebay_bin)))
        copies.append(copy)
    done = subprocess.run([analyze, "verify", "--man=no", *copies], capture_output=True, text=True)
    ours = [line for line in done.stderr.splitlines() if "forebay" in line]
    assert copies
    assert not ours, "\n".join(ours)


def test_the_compose_file_runs_the_program(forebay_bin: Path, tmp_path: Path) -> None:
    compose = yaml.safe_load((REPOSITORY / "deploy/compose.yaml").read_text())
    nodes = {n: s for n, s in compose["services"].items() if "forebay" in s["image"]}
    assert sum("target" in s["command"] for s in nodes.values()) == 3
    for name, service in nodes.items():
        assert service["cap_drop"] == ["ALL"], name
        mounts = {c["target"]: compose["configs"][c["source"]]["content"] for c in service["configs"]}
        (path,) = mounts
        assert path == service["command"][-1]
        file = tmp_path / f"{name}.toml"
        file.write_text(mounts[path])
        settings = tomllib.loads(file.read_text())
        secret = settings["cluster"]["secret_file"]
        assert secret in {f"/run/secrets/{s['source']}" for s in service["secrets"]}
        assert all(url.split("/")[2].split(":")[0] in nodes for url in settings["cluster"]["gateways"])
        env = {**os.environ, **{k: filled(v) for k, v in service["environment"].items()}}
        # One list of keys for every node; with none, nobody needs a key.
        assert service["environment"]["FOREBAY_S3__KEYS"] == "${FOREBAY_S3_KEYS:-[]}"
        assert "s3" not in settings
        assert env["FOREBAY_LISTEN__ADVERTISE"].split("/")[2].split(":")[0] == name
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            env["FOREBAY_LISTEN__HTTP"] = f"127.0.0.1:{taken.getsockname()[1]}"
            words = [forebay_bin, *service["command"][:-1], file]
            done = subprocess.run(words, env=env, capture_output=True, timeout=30)
        assert done.returncode == PORT_IN_USE, done.stderr
        volumes = {v.split(":")[0] for v in service["volumes"]}
        assert volumes <= compose["volumes"].keys()


def test_services_of_the_compose_file_wait_for_those_with_a_check_of_their_health() -> None:
    services = yaml.safe_load((REPOSITORY / "deploy/compose.yaml").read_text())["services"]
    checked = {name for name, service in services.items() if "healthcheck" in service}
    assert services.keys() == checked
    for name, port in (("gateway", 7400), ("target-1", 7410), ("target-3", 7410)):
        test = ["CMD", "forebay", "ready", f"http://127.0.0.1:{port}"]
        assert services[name]["healthcheck"]["test"] == test
    for service in services.values():
        for name, waits in service.get("depends_on", {}).items():
            assert waits == {"condition": "service_healthy"}
            assert name in checked


def filled(text: str) -> str:
    """A value of the compose file as Compose fills it in where no variable is set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)
