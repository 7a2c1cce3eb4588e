"""A target of the chart that is scaled down moves its objects first: its hook, its rights and its times."""

from __future__ import annotations

from pathlib import Path

import pytest
from forebay_chart import CHART, Manifest, environment_of, manifests, mounted, one, template_of

DRAIN = CHART / "ci/drain-values.yaml"
NO_DRAIN = CHART / "ci/no-drain-values.yaml"
MARGIN_S = 10


def node_of(documents: list[Manifest], role: str) -> Manifest:
    container: Manifest = template_of(documents, role)["spec"]["containers"][0]
    return container


def hook_of(documents: list[Manifest]) -> list[str]:
    """The command that runs before a target is stopped."""
    command: list[str] = node_of(documents, "target")["lifecycle"]["preStop"]["exec"]["command"]
    return command


def options(command: list[str]) -> dict[str, str]:
    names = [word for word in command if word.startswith("--")]
    return {name: command[command.index(name) + 1] for name in names}


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


@pytest.mark.parametrize("values", [None, DRAIN])
def test_a_target_asks_for_its_own_stateful_set_before_it_stops(values: Path | None) -> None:
    documents = manifests(values)
    command = hook_of(documents)
    assert command[:3] == ["/usr/local/bin/forebay", "node", "prestop"]
    given = options(command)
    stateful = one(documents, "StatefulSet", given["--statefulset"])
    assert stateful["spec"]["template"] == template_of(documents, "target")
    assert given["--namespace"] == stateful["metadata"]["namespace"]
    # The settings of the node, and its environment.
    assert given["--config"] in node_of(documents, "target")["args"]
    fields = {"metadata.name": "rel-forebay-target-2"}
    assert environment_of(node_of(documents, "target"), fields)["FOREBAY_NODE__ID"] == fields["metadata.name"]


def test_the_token_and_the_ca_of_the_api_are_where_the_hook_looks_for_them() -> None:
    documents = manifests()
    folder = options(hook_of(documents))["--kubernetes-dir"]
    assert dict(mounted(template_of(documents, "target")))[f"{folder}/token"] == "token of the API"
    assert dict(mounted(template_of(documents, "target")))[f"{folder}/ca.crt"] == "kube-root-ca.crt/ca.crt"


@pytest.mark.parametrize("values", [None, DRAIN])
def test_kubernetes_waits_longer_than_a_drain_takes(values: Path | None) -> None:
    documents = manifests(values)
    given = options(hook_of(documents))
    needed = seconds(given["--delay"]) + seconds(given["--drain-timeout"]) + MARGIN_S
    assert template_of(documents, "target")["spec"]["terminationGracePeriodSeconds"] > needed


def test_a_target_that_a_probe_finds_dead_is_killed_sooner() -> None:
    node = node_of(manifests(), "target")
    for probe in ("startupProbe", "livenessProbe"):
        assert node[probe]["terminationGracePeriodSeconds"] == 62
    # Kubernetes refuses the field there.
    assert "terminationGracePeriodSeconds" not in node["readinessProbe"]


def test_gateways_have_no_objects_to_move_and_only_wait() -> None:
    assert node_of(manifests(), "gateway")["lifecycle"] == {"preStop": {"sleep": {"seconds": 5}}}


def test_without_a_drain_targets_only_wait() -> None:
    documents = manifests(NO_DRAIN)
    node = node_of(documents, "target")
    assert node["lifecycle"] == {"preStop": {"sleep": {"seconds": 2}}}
    assert "terminationGracePeriodSeconds" not in node["livenessProbe"]
    assert template_of(documents, "target")["spec"]["terminationGracePeriodSeconds"] == 60


def egress_ports(documents: list[Manifest], role: str) -> dict[int, list[Manifest]]:
    """The ports that pods of a role may reach, each with the peers of its rule."""
    rules = one(documents, "NetworkPolicy", f"rel-forebay-{role}")["spec"]["egress"]
    return {port["port"]: rule.get("to", []) for rule in rules for port in rule["ports"]}


def test_targets_reach_the_api_server_and_gateways_do_not() -> None:
    assert {443, 6443} <= egress_ports(manifests(), "target").keys()
    assert not {443, 6443} & egress_ports(manifests(), "gateway").keys()
    assert 6443 not in egress_ports(manifests(NO_DRAIN), "target")


def test_the_values_name_the_address_of_the_api_server() -> None:
    peers = egress_ports(manifests(DRAIN), "target")[6443]
    assert peers == [{"ipBlock": {"cidr": "10.0.0.10/32"}}]
