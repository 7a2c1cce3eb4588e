"""Clouds in the chart: credentials reach targets and nobody else, and a CA of one's own is trusted."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import free_ports, wait_until
from forebay_chart import (
    CHART,
    Manifest,
    forebay,
    manifests,
    mounted,
    notes,
    one,
    running,
    template_of,
    tool,
    with_values,
)

AZURE = CHART / "ci/azure-values.yaml"
IDENTITIES = CHART / "ci/workload-identity-values.yaml"
LABEL = "azure.workload.identity/use"
# The account of every Azurite, and its published key.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def environment(documents: list[Manifest], role: str) -> dict[str, Any]:
    """Variables of a node, each with its value or the SECRET/KEY that it comes from."""
    found = {}
    for entry in template_of(documents, role)["spec"]["containers"][0]["env"]:
        secret = entry.get("valueFrom", {}).get("secretKeyRef", {})
        found[entry["name"]] = entry.get("value", f"{secret.get('name')}/{secret.get('key')}")
    return found


def of_azure(documents: list[Manifest], role: str = "target") -> dict[str, Any]:
    return {k: v for k, v in environment(documents, role).items() if k.startswith("AZURE_")}


def egress(documents: list[Manifest], role: str) -> list[Any]:
    policy = one(documents, "NetworkPolicy", f"rel-forebay-{role}")
    return list(policy["spec"]["egress"])


def ports(documents: list[Manifest], role: str = "target") -> set[int]:
    return {p["port"] for rule in egress(documents, role) for p in rule["ports"]}


def opens_metadata(documents: list[Manifest]) -> bool:
    return "169.254.169.254/32" in str(egress(documents, "target"))


def test_a_secret_gives_targets_the_account_of_azure_and_its_key() -> None:
    documents = manifests(AZURE)
    assert of_azure(documents) == {
        "AZURE_STORAGE_ACCOUNT": "azure/AZURE_STORAGE_ACCOUNT",
        "AZURE_STORAGE_KEY": "azure/AZURE_STORAGE_KEY",
        "AZURE_STORAGE_ENDPOINT": "https://blob.corp.example:8443",
    }
    assert of_azure(documents, "gateway") == {}
    assert 8443 in ports(documents)
    assert 8443 not in ports(documents, "gateway")
    assert not opens_metadata(documents)


def test_a_shared_access_signature_replaces_the_key_of_the_account(tmp_path: Path) -> None:
    azure = {"enabled": True, "account": "data", "existingSecret": "azure", "sasTokenKey": "sas"}
    found = of_azure(with_values(tmp_path, {"backends": {"azure": azure}}))
    assert found == {"AZURE_STORAGE_ACCOUNT": "data", "AZURE_STORAGE_SAS_TOKEN": "azure/sas"}


def test_without_a_secret_targets_use_the_identity_of_their_machine(tmp_path: Path) -> None:
    documents = with_values(tmp_path, {"backends": {"azure": {"enabled": True, "account": "data"}}})
    assert of_azure(documents) == {
        "AZURE_STORAGE_ACCOUNT": "data",
        "AZURE_STORAGE_AUTH_MODE": "login",
    }
    assert opens_metadata(documents)
    assert LABEL not in template_of(documents, "target")["metadata"]["labels"]


def test_workload_identity_marks_the_pods_of_targets_and_names_no_credential() -> None:
    documents = manifests(IDENTITIES)
    assert of_azure(documents) == {"AZURE_STORAGE_ACCOUNT": "trainingdata"}
    assert template_of(documents, "target")["metadata"]["labels"][LABEL] == "true"
    assert LABEL not in template_of(documents, "gateway")["metadata"]["labels"]
    account = one(documents, "ServiceAccount", "rel-forebay")["metadata"]["annotations"]
    assert "azure.workload.identity/client-id" in account
    keys = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "GOOGLE_APPLICATION_CREDENTIALS"}
    assert not keys & environment(documents, "target").keys()


def test_the_notes_warn_if_no_identity_is_named_for_workload_identity(tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("backends: {azure: {enabled: true, account: data, workloadIdentity: true}}\n")
    assert "azure.workload.identity/client-id" in notes(tmp_path, values)
    assert "azure.workload.identity/client-id" not in notes(tmp_path, IDENTITIES)


def test_temporary_keys_of_s3_come_with_their_session_token(tmp_path: Path) -> None:
    s3 = {"enabled": True, "existingSecret": "sts", "sessionTokenKey": "token"}
    found = environment(with_values(tmp_path, {"backends": {"s3": s3}}), "target")
    assert found["AWS_SESSION_TOKEN"] == "sts/token"
    assert found["AWS_ACCESS_KEY_ID"] == "sts/AWS_ACCESS_KEY_ID"
    assert "restart" in notes(tmp_path, tmp_path / "values.yaml")
    lasting = environment(manifests(CHART / "ci/ha-values.yaml"), "target")
    assert "AWS_SESSION_TOKEN" not in lasting


@pytest.mark.parametrize("source", ["configMap", "secret"])
def test_all_nodes_get_the_bundle_of_cas_beside_those_of_the_image(source: str, tmp_path: Path) -> None:
    documents = with_values(tmp_path, {"caBundle": {source: "corp", "key": "corp.crt"}})
    for role in ("gateway", "target"):
        found = environment(documents, role)
        assert found["SSL_CERT_FILE"] == "/etc/ssl/certs/ca-certificates.crt"
        files = dict(mounted(template_of(documents, role)))
        assert files[f"{found['SSL_CERT_DIR']}/ca.pem"] == "corp/corp.crt"
        assert "SSL_CERT_DIR" not in environment(manifests(), role)


@contextlib.contextmanager
def azurite(folder: Path, certificate: dict[str, str]) -> Iterator[int]:
    """Azure's emulator over HTTPS, with a certificate that no CA of the system signed."""
    program = tool("azurite.sh", "FOREBAY_REQUIRE_AZURITE")
    for name, text in certificate.items():
        (folder / name).write_text(text)
    port, log = free_ports(1), folder / "azurite.log"
    options = ["--blobPort", str(port), "--inMemoryPersistence", "--silent", "--skipApiVersionCheck"]
    files = ["--cert", str(folder / "tls.crt"), "--key", str(folder / "tls.key")]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, *options, *files, "--disableTelemetry"], cwd=folder, stdout=output, stderr=output
        )
    try:
        wait_until(lambda: b"successfully listen" in log.read_bytes(), f"Azurite; log in {log}", 60)
        yield port
    finally:
        process.terminate()
        process.wait(20)


def examined(folder: Path, port: int, bundle: dict[str, Any], ca: str) -> str:
    """Returns what targets of the chart report of a container that does not exist."""
    folder.mkdir()
    azure = {"enabled": True, "existingSecret": "azure", "endpoint": f"https://localhost:{port}"}
    one_of_each = {"gateway": {"replicas": 1}, "target": {"replicas": 1}}
    documents = with_values(folder, {**one_of_each, **bundle, "backends": {"azure": azure}})
    content = {"AZURE_STORAGE_ACCOUNT": ACCOUNT, "AZURE_STORAGE_KEY": KEY}
    secret = {"kind": "Secret", "metadata": {"name": "azure"}, "stringData": content}
    with running([*documents, secret], folder, {"lab/ca.crt": ca}) as release:
        done = forebay(release, "doctor", "az://missing")
    assert done.returncode == 1, done.stderr
    return done.stdout + done.stderr


def test_targets_reach_a_cloud_whose_certificate_the_bundle_verifies(
    tmp_path: Path, node_certificate: dict[str, str]
) -> None:
    with azurite(tmp_path, node_certificate) as port:
        ca = node_certificate["ca.crt"]
        without = examined(tmp_path / "without", port, {}, ca)
        trusted = examined(tmp_path / "with", port, {"caBundle": {"configMap": "lab"}}, ca)
    assert "certificate" in without
    # The signature was checked, and the container does not exist.
    assert "certificate" not in trusted
    assert "does not exist" in trusted or "404" in trusted, trusted
