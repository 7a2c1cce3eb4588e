"""Pods of the chart: containers of one's own, owners of folders, memory, and certificates."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from forebay_chart import (
    CHART,
    Manifest,
    environment_of,
    forebay,
    manifests,
    mounted,
    notes,
    of_kind,
    one,
    running,
    settings_of,
    template_of,
    with_values,
)

SIDECARS = CHART / "ci/sidecars-values.yaml"
TLS = CHART / "ci/tls-values.yaml"
ROLES = ("gateway", "target")


def pod_of(documents: list[Manifest], role: str) -> Manifest:
    spec: Manifest = template_of(documents, role)["spec"]
    return spec


def named(containers: list[Manifest]) -> dict[str, Manifest]:
    return {container["name"]: container for container in containers}


def test_by_default_a_pod_has_the_node_alone() -> None:
    for role in ROLES:
        pod = pod_of(manifests(), role)
        assert [container["name"] for container in pod["containers"]] == [role]
        assert "initContainers" not in pod


def test_containers_of_ones_own_stand_beside_the_node() -> None:
    documents = manifests(SIDECARS)
    for role in ROLES:
        # `kubectl exec` and `kubectl logs` use the first one.
        assert [*named(pod_of(documents, role)["containers"])] == [role, "logs"]
    (before,) = pod_of(documents, "gateway")["initContainers"]
    assert before["name"] == "copy-tools"
    assert before["volumeMounts"] == [{"name": "tools", "mountPath": "/tools"}]


def test_a_container_without_a_security_context_gets_that_of_the_chart() -> None:
    documents = manifests(SIDECARS)
    own, given = (named(pod_of(documents, role)["containers"])["logs"] for role in ROLES)
    node = pod_of(documents, "gateway")["containers"][0]
    assert own["securityContext"] == node["securityContext"]
    assert given["securityContext"]["runAsUser"] == 20000


def test_a_container_before_the_target_gives_the_folders_of_the_host_to_its_user(tmp_path: Path) -> None:
    pod = pod_of(manifests(SIDECARS), "target")
    (chown,) = pod["initContainers"]
    disks = ["/var/lib/forebay/disk0", "/var/lib/forebay/disk1"]
    user = pod["securityContext"]
    assert chown["command"] == ["chown", f"{user['runAsUser']}:{user['fsGroup']}", *disks]
    assert [m["mountPath"] for m in chown["volumeMounts"]] == disks
    assert chown["securityContext"]["runAsUser"] == 0
    assert chown["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["CHOWN"]}
    assert "runs a container as root" in notes(tmp_path, SIDECARS)


def test_without_this_wish_no_container_runs_as_root() -> None:
    pod = pod_of(manifests(CHART / "ci/hostpath-values.yaml"), "target")
    assert "initContainers" not in pod
    assert pod["securityContext"]["runAsNonRoot"] is True


MEMORY = {
    "the-program's-default-at-4Gi": ("4Gi", "128MiB"),
    "a-large-target": ("64Gi", "2048MiB"),
    "decimal": ("32G", "953MiB"),
    "bytes": (8589934592, "256MiB"),
    "fraction": ("1.5Gi", "48MiB"),
    "never-below-what-the-program-takes": ("256Mi", "16MiB"),
    "no-limit": (None, "128MiB"),
}


@pytest.mark.parametrize("name", MEMORY)
def test_memory_of_batches_follows_from_the_limit_of_the_pod(name: str, tmp_path: Path) -> None:
    limit, expected = MEMORY[name]
    resources = {"limits": {"memory": limit}}
    documents = with_values(tmp_path, {"target": {"resources": resources}})
    assert settings_of(documents, "target")["limits"]["batch_memory"] == expected


def test_memory_of_batches_in_the_values_counts_before_the_limit() -> None:
    limits = settings_of(manifests(CHART / "ci/all-on-values.yaml"), "target", "train-cache")["limits"]
    assert limits["batch_memory"] == "1GiB"


def test_without_tls_there_is_no_certificate() -> None:
    assert not of_kind(manifests(), "Certificate")
    for role in ROLES:
        probe = pod_of(manifests(), role)["containers"][0]["readinessProbe"]["httpGet"]
        assert "scheme" not in probe


def test_cert_manager_signs_the_names_under_which_nodes_are_reached() -> None:
    documents = manifests(TLS)
    spec = one(documents, "Certificate", "rel-forebay-tls")["spec"]
    assert spec["issuerRef"] == {"name": "corp", "kind": "ClusterIssuer", "group": "cert-manager.io"}
    assert {"server auth", "client auth"} <= set(spec["usages"])
    names = set(spec["dnsNames"])
    assert {"rel-forebay.ns1", "cache.example.com", "localhost"} <= names
    for role in ROLES:
        container = pod_of(documents, role)["containers"][0]
        env = environment_of(container, {"metadata.name": f"rel-forebay-{role}-0"})
        host = env["FOREBAY_LISTEN__ADVERTISE"].split("/")[2].split(":")[0]
        assert f"*.{host.partition('.')[2]}" in names
        files = dict(mounted(template_of(documents, role)))
        for setting, key in (("CERT", "tls.crt"), ("KEY", "tls.key"), ("CA", "ca.crt")):
            assert files[env[f"FOREBAY_TLS__{setting}"]] == f"{spec['secretName']}/{key}"
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"]["scheme"] == "HTTPS"


def test_a_secret_of_ones_own_name_gets_the_certificate(tmp_path: Path) -> None:
    made = {"enabled": True, "issuerRef": {"name": "corp"}}
    documents = with_values(tmp_path, {"tls": {"secretName": "nodes", "certManager": made}})
    assert one(documents, "Certificate", "rel-forebay-tls")["spec"]["secretName"] == "nodes"
    assert "nodes/tls.key" in dict(mounted(template_of(documents, "target"))).values()


def test_a_cluster_with_the_certificate_serves_https_and_is_ready_by_its_probes(
    tmp_path: Path, node_certificate: dict[str, str]
) -> None:
    values: dict[str, Any] = {
        "gateway": {"replicas": 1},
        "target": {"replicas": 2},
        "tls": {"certManager": {"enabled": True, "issuerRef": {"name": "corp"}}},
    }
    secrets = {f"rel-forebay-tls/{key}": text for key, text in node_certificate.items()}
    with running(with_values(tmp_path, values), tmp_path, secrets) as release:
        gateway = release.pods[0]
        endpoint = f"https://localhost:{gateway.port}"
        done = forebay(release, "tls", "show", "-o", "json", FOREBAY_ENDPOINT=endpoint)
        assert done.returncode == 0, done.stdout + done.stderr
        context = ssl.create_default_context(cadata=node_certificate["ca.crt"])
        for pod in release.pods:
            with socket.create_connection(("127.0.0.1", pod.port), 5) as plain:
                with context.wrap_socket(plain, server_hostname="localhost") as secure:
                    assert secure.version() == "TLSv1.3"
