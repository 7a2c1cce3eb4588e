"""Clients outside of Kubernetes reach each target of the chart by a Service of its own, and its settings say how."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from forebay_chart import CHART, Manifest, manifests, notes, of_kind, one, settings_of, with_values

NODE_PORT = CHART / "ci/external-nodeport-values.yaml"
BALANCER = CHART / "ci/external-loadbalancer-values.yaml"
INGRESS = CHART / "ci/external-ingress-values.yaml"
OUTSIDE = {"forebay.io/service": "external"}
REPLICAS = 3


def services_outside(documents: list[Manifest]) -> dict[str, dict[str, Any]]:
    """The Services for clients outside, by name."""
    services = of_kind(documents, "Service")
    found = [s for s in services if OUTSIDE.items() <= s["metadata"]["labels"].items()]
    return {service["metadata"]["name"]: service for service in found}


def url_of(documents: list[Manifest], ordinal: int) -> str:
    """The URL of a target for clients outside: its setting, filled in as the program does."""
    template: str = settings_of(documents, "target")["listen"]["external"]
    template = template.replace("{name}", f"rel-forebay-target-{ordinal}").replace("{ordinal}", str(ordinal))
    return re.sub(r"\{ordinal\+(\d+)\}", lambda first: str(int(first[1]) + ordinal), template)


def test_by_default_nothing_is_open_to_the_outside() -> None:
    documents = manifests()
    assert not services_outside(documents)
    assert {s["spec"].get("type", "ClusterIP") for s in of_kind(documents, "Service")} == {"ClusterIP"}
    for role in ("gateway", "target"):
        assert not {"external", "external_hosts"} & settings_of(documents, role)["listen"].keys()


@pytest.mark.parametrize("values", [NODE_PORT, BALANCER, INGRESS])
def test_each_target_has_a_service_that_selects_its_pod_alone(values: Path) -> None:
    services = services_outside(manifests(values))
    for ordinal in range(REPLICAS):
        name = f"rel-forebay-target-{ordinal}"
        spec = services[name]["spec"]
        assert spec["selector"]["statefulset.kubernetes.io/pod-name"] == name
        assert [port["targetPort"] for port in spec["ports"]] == ["http"]
    gateways = set() if values == INGRESS else {"rel-forebay-external"}
    assert services.keys() == {f"rel-forebay-target-{n}" for n in range(REPLICAS)} | gateways


@pytest.mark.parametrize("values", [NODE_PORT, BALANCER, INGRESS])
def test_nodes_accept_the_names_under_which_clients_outside_reach_them(values: Path) -> None:
    documents = manifests(values)
    for role in ("gateway", "target"):
        listen = settings_of(documents, role)["listen"]
        assert set(listen["external_hosts"]) <= set(listen["hosts"])
        host = url_of(documents, 1).split("/")[2].split(":")[0]
        names = {host, f"*.{host.partition('.')[2]}"}
        assert names & set(listen["external_hosts"])


@pytest.mark.parametrize("values", [NODE_PORT, BALANCER, INGRESS])
def test_settings_do_not_change_with_the_number_of_targets(values: Path) -> None:
    few = manifests(values)
    more = manifests(values, "1.34", "--set", "target.replicas=5")
    for role in ("gateway", "target"):
        assert settings_of(few, role) == settings_of(more, role)
    assert len(services_outside(more)) == len(services_outside(few)) + 2


def test_ports_of_machines_are_those_of_the_urls() -> None:
    documents = manifests(NODE_PORT)
    services = services_outside(documents)
    for ordinal in range(REPLICAS):
        (port,) = services[f"rel-forebay-target-{ordinal}"]["spec"]["ports"]
        assert url_of(documents, ordinal) == f"http://192.0.2.10:{port['nodePort']}"
    gateways = services["rel-forebay-external"]["spec"]
    assert gateways["ports"][0]["nodePort"] == 31000
    assert settings_of(documents, "gateway")["listen"]["external"] == "http://192.0.2.10:31000"
    assert gateways["type"] == "NodePort" and gateways["externalTrafficPolicy"] == "Local"


def test_each_load_balancer_gets_the_name_of_its_target() -> None:
    documents = manifests(BALANCER)
    for ordinal in range(REPLICAS):
        service = services_outside(documents)[f"rel-forebay-target-{ordinal}"]
        name = service["metadata"]["annotations"]["external-dns.alpha.kubernetes.io/hostname"]
        assert url_of(documents, ordinal) == f"https://{name}:7410"
        assert service["metadata"]["annotations"]["example.com/target"] == str(ordinal)
        assert service["spec"]["loadBalancerClass"] == "example.com/internal"
        assert service["spec"]["loadBalancerSourceRanges"] == ["10.0.0.0/8"]
    # Nodes serve HTTPS under these names.
    names = one(documents, "Certificate", "rel-forebay-tls")["spec"]["dnsNames"]
    assert {"cache.example.com", "*.cache.example.com"} <= set(names)


def test_an_ingress_has_a_rule_for_the_gateways_and_one_for_each_target() -> None:
    documents = manifests(INGRESS)
    spec = one(documents, "Ingress", "rel-forebay")["spec"]
    routes = {
        rule["host"]: path["backend"]["service"]["name"]
        for rule in spec["rules"]
        for path in rule["http"]["paths"]
    }
    expected = {url_of(documents, n).split("/")[2]: f"rel-forebay-target-{n}" for n in range(REPLICAS)}
    assert routes == {"cache.example.com": "rel-forebay", **expected}
    assert set(spec["tls"][0]["hosts"]) == routes.keys()
    services = {s["metadata"]["name"] for s in of_kind(documents, "Service")}
    assert set(routes.values()) <= services


@pytest.mark.parametrize("values", [NODE_PORT, BALANCER, INGRESS])
def test_the_network_policy_admits_clients_outside(values: Path) -> None:
    documents = manifests(values)
    for policy in of_kind(documents, "NetworkPolicy"):
        peers = policy["spec"]["ingress"][0]["from"]
        assert any("ipBlock" in peer or "namespaceSelector" in peer for peer in peers)


def test_clients_that_are_named_while_external_is_off_are_not_admitted(tmp_path: Path) -> None:
    values = {"external": {"clients": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}}
    for policy in of_kind(with_values(tmp_path, values), "NetworkPolicy"):
        assert not [p for p in policy["spec"]["ingress"][0]["from"] if "ipBlock" in p]


@pytest.mark.parametrize(
    ("values", "endpoint"),
    [
        (NODE_PORT, "http://192.0.2.10:31000"),
        (BALANCER, "https://cache.example.com:7400"),
        (INGRESS, "https://cache.example.com"),
    ],
)
def test_the_notes_name_the_endpoint_for_clients_outside(
    values: Path, endpoint: str, tmp_path: Path
) -> None:
    assert f"FOREBAY_ENDPOINT={endpoint}\n" in notes(tmp_path, values)
