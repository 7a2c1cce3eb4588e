"""Several accounts of clouds in the chart: targets get their settings and the files of their Secrets."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forebay_chart import (
    CHART,
    Manifest,
    Release,
    forebay,
    manifests,
    mounted,
    notes,
    one,
    running,
    settings_of,
    template_of,
    with_values,
)
from forebay_clouds import Minio

CLOUDS = CHART / "ci/clouds-values.yaml"
FILES = "/run/secrets/clouds"


def of_clouds(documents: list[Manifest], role: str = "target") -> dict[str, str]:
    """The files of accounts in a pod, each with its source."""
    files = mounted(template_of(documents, role))
    return {path: source for path, source in files if path.startswith(FILES)}


def ports(documents: list[Manifest], role: str = "target") -> set[int]:
    policy = one(documents, "NetworkPolicy", f"rel-forebay-{role}")
    return {p["port"] for rule in policy["spec"]["egress"] for p in rule["ports"]}


def opens_metadata(documents: list[Manifest]) -> bool:
    policy = one(documents, "NetworkPolicy", "rel-forebay-target")
    return "169.254.169.254/32" in str(policy["spec"]["egress"])


def test_targets_get_a_table_for_each_account() -> None:
    documents = manifests(CLOUDS)
    assert settings_of(documents, "target")["cloud"] == [
        {
            "name": "prod",
            "provider": "s3",
            "endpoint": "https://minio.lab.example:9000",
            "endpoints": ["minio-2.lab.example:9001", "minio-3.lab.example"],
            "region": "eu-lab",
            "access_key": "trainer",
            "requester_pays": True,
            "secret_key_file": f"{FILES}/prod/secret-key",
        },
        {
            "name": "archive_eu",
            "provider": "s3",
            "region": "eu-central-1",
            "profile": "archive",
            "credentials_file": f"{FILES}/archive_eu/credentials",
        },
        {"name": "lab", "provider": "gcs", "credentials_file": f"{FILES}/lab/key.json"},
        {"name": "own", "provider": "gcs"},
        {
            "name": "images",
            "provider": "azure",
            "storage_account": "images",
            "secret_key_file": f"{FILES}/images/key",
        },
        {
            "name": "Texts",
            "provider": "azure",
            "endpoint": "https://texts.corp.example:8443",
            "storage_account": "texts",
            "sas_file": f"{FILES}/Texts/sas",
        },
    ]
    assert "cloud" not in settings_of(documents, "gateway")
    assert "cloud" not in settings_of(manifests(), "target")


def test_each_credential_is_a_file_from_its_secret_that_others_cannot_read() -> None:
    documents = manifests(CLOUDS)
    assert of_clouds(documents) == {
        f"{FILES}/prod/secret-key": "cloud-prod/secret-key",
        f"{FILES}/archive_eu/credentials": "cloud-archive/credentials",
        f"{FILES}/lab/key.json": "cloud-lab/key.json",
        f"{FILES}/images/key": "cloud-images/key",
        f"{FILES}/Texts/sas": "cloud-texts/sas",
    }
    volumes = template_of(documents, "target")["spec"]["volumes"]
    modes = {v["name"]: v["secret"]["defaultMode"] for v in volumes if v["name"].startswith("cloud-")}
    assert set(modes.values()) == {0o440}
    assert len(modes) == 5
    assert of_clouds(documents, "gateway") == {}


def test_the_program_accepts_the_settings_and_names_the_accounts(
    forebay_bin: Path, tmp_path: Path
) -> None:
    text = one(manifests(CLOUDS), "ConfigMap", "rel-forebay-target")["data"]["target.toml"]
    file = tmp_path / "target.toml"
    file.write_text(text)

    def run(*command: str) -> str:
        done = subprocess.run([forebay_bin, *command], capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("config", "validate", str(file))
    shown = run("config", "show", "--config", str(file))
    for name in ("prod", "archive_eu", "lab", "own", "images", "Texts"):
        assert f'"{name}"' in shown, shown


def test_the_network_policy_opens_the_ports_of_the_servers_to_targets() -> None:
    documents = manifests(CLOUDS)
    assert {9000, 9001, 8443, 443} <= ports(documents)
    assert not {9000, 9001, 8443} & ports(documents, "gateway")


def test_an_account_without_a_secret_reaches_the_identity_service(tmp_path: Path) -> None:
    assert opens_metadata(manifests(CLOUDS))
    file = {"name": "lab", "provider": "gcs", "existingSecret": "lab", "credentialsKey": "key.json"}
    assert not opens_metadata(with_values(tmp_path, {"target": {"clouds": [file]}}))


def test_a_changed_account_restarts_targets_and_no_gateway(tmp_path: Path) -> None:
    def checksums(region: str) -> list[str]:
        account = {"name": "a", "provider": "s3", "region": region}
        folder = tmp_path / region
        folder.mkdir()
        documents = with_values(folder, {"target": {"clouds": [account]}})
        templates = [template_of(documents, role) for role in ("gateway", "target")]
        return [template["metadata"]["annotations"]["checksum/config"] for template in templates]

    (gateway, target), (same, other) = checksums("eu"), checksums("us")
    assert gateway == same
    assert target != other


def test_the_notes_show_how_a_bucket_names_its_account(tmp_path: Path) -> None:
    assert "forebay mb 's3://#prod/BUCKET' --account prod" in notes(tmp_path, CLOUDS)
    assert "--account" not in notes(tmp_path)


@pytest.fixture
def release(tmp_path: Path, minio: Minio) -> Iterator[Release]:
    """One gateway and one target, with two accounts at one server, whose credentials have different forms."""
    access, secret = minio.env["AWS_ACCESS_KEY_ID"], minio.env["AWS_SECRET_ACCESS_KEY"]
    s3 = {"provider": "s3", "endpoint": minio.endpoint}
    by_key = {"accessKey": access, "existingSecret": "prod", "secretKeyKey": "key"}
    by_profile = {"profile": "archive", "existingSecret": "aws", "credentialsKey": "credentials"}
    clouds: list[dict[str, Any]] = [
        {**s3, "name": "prod", **by_key},
        {**s3, "name": "archive", **by_profile},
    ]
    one_of_each = {"gateway": {"replicas": 1}, "target": {"replicas": 1, "clouds": clouds}}
    profile = f"[archive]\naws_access_key_id = {access}\naws_secret_access_key = {secret}\n"
    documents = with_values(tmp_path, one_of_each)
    with running(documents, tmp_path, {"prod/key": f"{secret}\n", "aws/credentials": profile}) as pods:
        yield pods


def test_buckets_of_two_accounts_are_read_from_their_clouds(release: Release, minio: Minio) -> None:
    for account in ("prod", "archive"):
        name, own = minio.new_bucket()
        own.put_object(Bucket=name, Key="k", Body=f"of {account}".encode())
        bucket = f"s3://#{account}/{name}"
        made = forebay(release, "mb", bucket, "--account", account)
        assert made.returncode == 0, made.stderr
        read = forebay(release, "get", f"{bucket}/k", "-")
        assert read.stdout == f"of {account}", read.stderr
    # The default account has no credentials here, and an account that the values do not have is refused.
    refused = forebay(release, "mb", "s3://#x/data", "--account", "other")
    assert refused.returncode != 0
    assert "other" in refused.stderr
