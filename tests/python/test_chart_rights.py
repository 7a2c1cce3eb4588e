"""The chart gives nodes no rights in Kubernetes but one, and renders no secret that others could know."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
from forebay_chart import CHART, Manifest, manifests, of_kind, render, values_files

SETS = [None, *values_files()]
# A source of text that is the same in every installation, or that anybody can compute.
WORDS = re.compile(r"(?i)password|passwd|secret|token|private.?key|BEGIN [A-Z ]*PRIVATE KEY")


def name_of(values: object) -> str:
    return values.stem if isinstance(values, Path) else "default"


each_set = pytest.mark.parametrize("values", SETS, ids=name_of)


def texts(document: Any, path: str = "") -> list[tuple[str, str]]:
    """Path and text of every string in a manifest."""
    if isinstance(document, dict):
        return [found for key, value in document.items() for found in texts(value, f"{path}.{key}")]
    if isinstance(document, list):
        return [found for value in document for found in texts(value, path)]
    return [(path, document)] if isinstance(document, str) else []


NO_DRAIN = CHART / "ci/no-drain-values.yaml"


def rights(documents: list[Manifest]) -> list[Manifest]:
    """The manifests that give rights in Kubernetes."""
    kinds = ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
    return [document for document in documents if document["kind"] in kinds]


@each_set
def test_the_only_right_is_to_read_the_stateful_set_of_targets(values: Path | None) -> None:
    documents = manifests(values)
    if values == NO_DRAIN:
        assert not rights(documents)
        return
    role, binding = rights(documents)
    (targets,) = (
        stateful["metadata"]["name"]
        for stateful in of_kind(documents, "StatefulSet")
        if stateful["metadata"]["name"].endswith("-target")
    )
    assert role["kind"] == "Role"
    assert role["rules"] == [
        {"apiGroups": ["apps"], "resources": ["statefulsets"], "resourceNames": [targets], "verbs": ["get"]}
    ]
    assert binding["kind"] == "RoleBinding"
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (subject,) = binding["subjects"]
    assert subject["kind"] == "ServiceAccount"
    for document in documents:
        for pod in pods(document):
            assert pod["serviceAccountName"] == subject["name"]


@each_set
def test_only_the_container_of_a_target_gets_a_token_of_the_api(values: Path | None) -> None:
    documents = manifests(values)
    for document in documents:
        name = document["metadata"]["name"]
        for pod in pods(document):
            volumes = {v["name"] for v in pod.get("volumes", []) if has_api_token(v)}
            holders = [
                container["name"]
                for container in [*pod["containers"], *pod.get("initContainers", [])]
                if volumes & {mount["name"] for mount in container.get("volumeMounts", [])}
            ]
            drains = document["kind"] == "StatefulSet" and name.endswith("-target") and values != NO_DRAIN
            assert holders == (["target"] if drains else []), name


def has_api_token(volume: Manifest) -> bool:
    """Whether the API server of Kubernetes accepts the token of a volume. Nodes have another one if the
    values name its service accounts as an issuer of users (auth.issuers), to fetch the public keys."""
    sources = volume.get("projected", {}).get("sources", [])
    tokens = [source["serviceAccountToken"] for source in sources if "serviceAccountToken" in source]
    of_issuer = volume["name"].startswith("issuer-")
    return not of_issuer and any("audience" not in token for token in tokens)


@each_set
def test_no_pod_has_a_token_by_default_nor_rights_on_its_machine(values: Path | None) -> None:
    documents = manifests(values)
    for account in of_kind(documents, "ServiceAccount"):
        assert account["automountServiceAccountToken"] is False, account["metadata"]["name"]
    for document in documents:
        for pod in pods(document):
            assert pod.get("automountServiceAccountToken", False) is False
            assert not pod.get("hostNetwork") and not pod.get("hostPID") and not pod.get("hostIPC")
            for container in [*pod["containers"], *pod.get("initContainers", [])]:
                context = container.get("securityContext", {})
                assert not context.get("privileged"), container["name"]
                # The values must ask for it by name.
                if context.get("runAsUser") == 0:
                    assert container["name"] == "chown-disks"
                    assert values and "chownDisks: {enabled: true}" in values.read_text()


def pods(document: Manifest) -> list[Manifest]:
    """The pods that a manifest makes."""
    if document["kind"] == "Pod":
        return [document["spec"]]
    template = document.get("spec", {}).get("template") if document.get("spec") else None
    return [template["spec"]] if isinstance(template, dict) and "spec" in template else []


@each_set
def test_no_secret_is_rendered_but_keys_that_the_values_give(values: Path | None) -> None:
    given = values.read_text(encoding="utf-8") if values else ""
    for secret in of_kind(manifests(values), "Secret"):
        if secret["type"] == "kubernetes.io/service-account-token":
            # Kubernetes fills it.
            assert not secret.get("data") and not secret.get("stringData")
            continue
        content = dict(secret.get("stringData", {}))
        for key, value in secret.get("data", {}).items():
            content[key] = base64.b64decode(value).decode()
        for text in content.values():
            for word in re.findall(r'secret\s*=\s*\\?"([^"\\]+)', text):
                assert word in given, f"{secret['metadata']['name']} has a secret of the chart's own"


@each_set
def test_no_setting_or_variable_of_a_pod_holds_a_secret(values: Path | None) -> None:
    for document in manifests(values):
        if document["kind"] == "ConfigMap":
            for path, text in texts(document.get("data", {})):
                for line in text.splitlines():
                    key, _, value = line.partition("=")
                    if WORDS.search(key) and not key.strip().endswith("_file"):
                        assert not value.strip(' "'), f"{path}: {line}"
        for pod in pods(document):
            for container in pod["containers"]:
                for variable in container.get("env", []):
                    if WORDS.search(variable["name"]) and "value" in variable:
                        assert variable["value"].startswith("/"), variable["name"]


def test_templates_make_no_secret_of_their_own() -> None:
    """A random text would change with each upgrade, and a derived one could be computed."""
    for template in sorted((CHART / "templates").rglob("*")):
        if template.is_file():
            text = template.read_text(encoding="utf-8")
            made = re.findall(
                r"rand(?:Alpha|AlphaNum|Ascii|Numeric|Bytes)|gen(?:CA|PrivateKey|SelfSignedCert|SignedCert)"
                r"|derivePassword|htpasswd|BEGIN [A-Z ]*PRIVATE KEY",
                text,
            )
            assert not made, f"{template.name}: {made}"
    assert render() == render()
