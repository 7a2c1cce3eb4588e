"""Targets of the chart that join by a token and do not have the cluster's secret."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import wait_until
from forebay_chart import (
    CHART,
    Release,
    forebay,
    helm,
    log_in,
    manifests,
    mounted,
    settings_of,
    template_of,
    with_values,
)

JOIN = CHART / "ci/join-token-values.yaml"
ADMIN = {"admin": "root", "existingSecret": "admin"}
CLUSTER_SECRET = "/run/secrets/forebay/cluster"


def test_by_default_all_nodes_have_the_secret_of_the_cluster() -> None:
    for role in ("gateway", "target"):
        cluster = settings_of(manifests(), role)["cluster"]
        assert cluster["secret_file"] == CLUSTER_SECRET
        assert "join_token_file" not in cluster
        assert CLUSTER_SECRET in dict(mounted(template_of(manifests(), role)))


def test_a_target_with_a_join_token_does_not_have_the_secret_of_the_cluster() -> None:
    documents = manifests(JOIN)
    target = settings_of(documents, "target")["cluster"]
    assert "secret_file" not in target
    files = dict(mounted(template_of(documents, "target")))
    assert files[target["join_token_file"]] == "forebay-join/token"
    assert "rel-forebay-cluster" not in str(template_of(documents, "target"))
    gateway = settings_of(documents, "gateway")["cluster"]
    assert gateway["secret_file"] == CLUSTER_SECRET
    assert "forebay-join" not in str(template_of(documents, "gateway"))


def test_a_pod_starts_without_the_secret_of_the_join_token() -> None:
    volumes = template_of(manifests(JOIN), "target")["spec"]["volumes"]
    (volume,) = [v["secret"] for v in volumes if v["name"] == "join-token"]
    assert volume["optional"] is True


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no-users": ({"target": {"joinTokenSecret": "join"}}, "needs auth.admin or auth.required"),
    "no-volume-for-the-key": (
        {"auth": ADMIN, "target": {"joinTokenSecret": "join", "storage": "emptyDir"}},
        "does not fit target.storage=emptyDir",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_join_token_that_cannot_work_is_refused(name: str, tmp_path: Path) -> None:
    values, message = REFUSED[name]
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    done = helm("template", "rel", CHART, "--kube-version", "1.34", "--values", file)
    assert done.returncode != 0, "it was rendered"
    assert message in done.stderr, done.stderr


@contextlib.contextmanager
def gateways_only(folder: Path) -> Iterator[Release]:
    """A release whose targets do not run yet. The administrator is logged in."""
    values = {
        "gateway": {"replicas": 1},
        "target": {"replicas": 2, "joinTokenSecret": "join"},
        "auth": {**ADMIN, "required": True},
    }
    secrets = {"admin/password": "correct horse battery staple\n"}
    release = Release(with_values(folder, values), folder, secrets)
    release.plan()
    try:
        release.start("gateway")
        log_in(release)
        yield release
    finally:
        release.stop()


def join_token(release: Release, uses: int) -> str:
    """A new join token. The cluster makes one as soon as it has the keys of its nodes."""
    tokens: list[str] = []

    def made() -> bool:
        done = forebay(release, "node", "join-token", "create", "--uses", str(uses))
        tokens.extend([done.stdout] if done.returncode == 0 else [])
        return bool(tokens)

    wait_until(made, "the cluster makes a join token")
    return tokens[0]


def test_targets_join_by_the_token_and_return_without_it(tmp_path: Path) -> None:
    with gateways_only(tmp_path) as release:
        release.add_secret("join/token", join_token(release, uses=2))
        release.start("target")
        release.wait_ready("target")
        release.stop("target")
        tokens = [*tmp_path.glob("rel-forebay-target-*/secrets/join/token")]
        assert len(tokens) == 2
        for token in tokens:
            token.unlink()
        release.start("target")
        release.wait_ready("target")
