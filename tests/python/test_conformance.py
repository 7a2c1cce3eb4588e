"""Suites of others pass here, where they are at hand: without users, and with users and TLS.

AIStore's own tests: AIS_CONFORMANCE names a folder with `run.sh` (runs the suites against ENDPOINT into
OUT), `report.py` (compares two results), `upstream/python/tests` (the tests) and
`baseline/aistore-5.0-ais.json` (what AIStore itself passes; `…-authn.json` with its users);
AIS_CONFORMANCE_PYTHON an interpreter with the packages that they need. A test that takes longer than
TEST_TIMEOUT seconds (120) fails: give more on a machine under load.

Ceph's tests of S3: S3_CONFORMANCE names a folder with `run.sh`, which runs the tests of SCOPE against
S3_HOST and S3_PORT, and writes OUT/results.json with the outcome of each; S3_CONFORMANCE_VENV an
environment with the packages that they need.

Without a folder its tests are skipped.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from conftest import Cluster
from forebay_users import ADMIN, ADMIN_PASSWORD, FOREIGN_VARIABLES, configuration

AISTORE = Path(os.environ.get("AIS_CONFORMANCE", "/nowhere"))
CEPH = Path(os.environ.get("S3_CONFORMANCE", "/nowhere"))

needs_aistore = pytest.mark.skipif(
    not (AISTORE / "run.sh").is_file(), reason="AIS_CONFORMANCE names no folder with AIStore's suites"
)
needs_ceph = pytest.mark.skipif(
    not (CEPH / "run.sh").is_file(), reason="S3_CONFORMANCE names no folder with Ceph's suite"
)
modes = pytest.mark.parametrize("has_users", [False, True], ids=["open", "users and TLS"])

# AIStore's tests are started with both: S3 at `/`, and checksums that are ETags of S3.
S3_AT_ROOT = {"features": "8", "checksum": {"type": "md5"}}
# Skipped by the suite itself, as it gets no name of an API of its configuration.
CEPH_SKIPS = {"s3tests/functional/test_s3.py::test_bucket_get_location"}


@pytest.fixture
def start(start_cluster: Callable[..., Cluster], tmp_path: Path) -> Callable[..., Cluster]:
    """`start(has_users, "line of [s3]")` -> a cluster without users, or with users and TLS."""

    def start(has_users: bool, *s3: str) -> Cluster:
        settings = configuration(tmp_path) if has_users else tmp_path / "settings.toml"
        with settings.open("a") as file:
            file.write("\n".join(["", "[s3]", *s3, ""]))
        options = ["--config", str(settings), *(["--tls"] if has_users else [])]
        return start_cluster(options=options)

    return start


def environment(cluster: Cluster) -> dict[str, str]:
    """The environment of clients of this cluster: CA and token of `dev.json`, no settings of others."""
    clean = {k: v for k, v in os.environ.items() if k not in {*FOREIGN_VARIABLES, "SSL_CERT_FILE"}}
    if ca := cluster.info.get("ca"):
        # Of AIStore's SDK, boto3, curl, and minio-py.
        names = ("AIS_CLIENT_CA", "AWS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
        clean |= dict.fromkeys(names, ca)
    if token := cluster.info.get("token"):
        clean["AIS_AUTHN_TOKEN"] = token
    return clean


def own_tests(folder: Path, is_https: bool) -> Path:
    """A copy of AIStore's tests. One of their clients is made for HTTP, whatever the endpoint."""
    tests = folder / "tests"
    shutil.copytree(AISTORE / "upstream/python/tests", tests)
    helpers = tests / "s3compat/minio_helpers.py"
    text = helpers.read_text()
    assert "secure=False" in text
    helpers.chmod(0o644)
    helpers.write_text(text.replace("secure=False", f"secure={is_https}"))
    return tests


def run_aistore(cluster: Cluster, groups: str, out: Path, **env: str | None) -> Path:
    """Runs groups of AIStore's tests; returns the file of results. `None` unsets a variable."""
    key = cluster.info["s3_keys"][0]
    ours = environment(cluster) | {
        "ENDPOINT": cluster.endpoint,
        "PYTHON": os.environ.get("AIS_CONFORMANCE_PYTHON", sys.executable),
        "TESTS_SRC": str(own_tests(out, cluster.endpoint.startswith("https:"))),
        "OUT": str(out),
        "GROUPS_": groups,
        "AWS_ACCESS_KEY_ID": key["access"],
        "AWS_SECRET_ACCESS_KEY": key["secret"],
        "ACCESS_KEY": key["access"],
        "SECRET_KEY": key["secret"],
        # Its script for this setting sends no token.
        "S3COMPAT_CONFIGURE": "0",
    }
    ours |= {name: value for name, value in env.items() if value is not None}
    unset = {name for name, value in env.items() if value is None}
    ours = {name: value for name, value in ours.items() if name not in unset}
    subprocess.run([AISTORE / "run.sh"], env=ours, check=False)
    return out / "results.json"


def loses_nothing(baseline: str, results: Path) -> None:
    compare = [AISTORE / "report.py", "compare", AISTORE / "baseline" / baseline, results]
    done = subprocess.run(compare, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_aistore
@modes
@pytest.mark.timeout(1800)
def test_what_passes_on_aistore_passes_here(
    start: Callable[..., Cluster], has_users: bool, tmp_path: Path
) -> None:
    cluster = start(has_users, "delete_nonempty_buckets = true")
    groups = ("sdk pytorch boto3 botocore", "s3compat")
    found: dict[str, Any] = {}
    for part in groups:
        if part == "s3compat":
            set_config(cluster, S3_AT_ROOT)
        results = run_aistore(cluster, part, tmp_path / part.split()[0])
        found |= json.loads(results.read_text())["tests"]
    together = tmp_path / "results.json"
    together.write_text(json.dumps({"tests": found}))
    loses_nothing("aistore-5.0-ais.json", together)


@needs_aistore
@pytest.mark.timeout(600)
def test_what_passes_with_users_of_aistore_passes_here(
    start: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = start(True)
    # A token in the environment would stand in for those that the tests leave out.
    login = {"AIS_AUTHN_URL": cluster.endpoint, "AIS_AUTHN_TOKEN": None}
    admin = {"AIS_AUTHN_SU_NAME": ADMIN, "AIS_AUTHN_SU_PASS": ADMIN_PASSWORD}
    results = run_aistore(cluster, "authn", tmp_path / "authn", **login, **admin)
    loses_nothing("aistore-5.0-authn.json", results)


def set_config(cluster: Cluster, value: dict[str, Any]) -> None:
    """Changes the configuration of the cluster, over v1."""
    token = cluster.info.get("token")
    with requests.Session() as session, contextlib.ExitStack() as held:
        # Or the variables for CAs would come before `verify`.
        session.trust_env = False
        answer = held.enter_context(
            session.put(
                f"{cluster.endpoint}/v1/cluster",
                json={"action": "set-config", "value": value},
                headers={} if token is None else {"Authorization": f"Bearer {token}"},
                verify=cluster.info.get("ca", True),
                timeout=20,
            )
        )
        assert answer.status_code == 200, answer.text


@needs_ceph
@modes
@pytest.mark.timeout(1800)
def test_the_required_tests_of_ceph_pass(
    start: Callable[..., Cluster], has_users: bool, tmp_path: Path
) -> None:
    cluster = start(has_users, "root = true")
    key, alt = cluster.info["s3_keys"][:2]
    where = urllib.parse.urlsplit(cluster.endpoint)
    ours = environment(cluster) | {
        "S3_HOST": str(where.hostname),
        "S3_PORT": str(where.port),
        "S3_SECURE": str(where.scheme == "https"),
        "S3_ACCESS_KEY": key["access"],
        "S3_SECRET_KEY": key["secret"],
        "S3_ALT_ACCESS_KEY": alt["access"],
        "S3_ALT_SECRET_KEY": alt["secret"],
        "SCOPE": "must",
        "OUT": str(tmp_path / "out"),
    }
    if venv := os.environ.get("S3_CONFORMANCE_VENV"):
        ours["VENV"] = venv
    if ca := cluster.info.get("ca"):
        ours["REQUESTS_CA_BUNDLE"] = ca
    subprocess.run([CEPH / "run.sh"], env=ours, check=False)
    results = json.loads((tmp_path / "out/results.json").read_text())
    lost = {
        test: outcome.get("why", outcome["outcome"])
        for test, outcome in results.items()
        if outcome["outcome"] != "passed" and test not in CEPH_SKIPS
    }
    assert not lost, f"{len(lost)} of {len(results)}: {json.dumps(lost, indent=1)}"
    assert len(results) > 200, "the suite found no tests"
