"""Users in the chart, the units and the compose file: what is rendered, what is refused, and real
processes that need a token."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import REPOSITORY, wait_until
from forebay_chart import (
    CHART,
    Manifest,
    Pod,
    Release,
    forebay,
    have,
    helm,
    log_in,
    manifests,
    mounted,
    of_kind,
    one,
    running,
    settings_of,
    template_of,
    with_values,
)

AUTH = CHART / "ci/auth-values.yaml"
ROLES = ("gateway", "target")
BAD_CONFIG, PORT_IN_USE = 2, 10
PASSWORD = "correct horse battery staple"
SHARED_SECRET = "a secret of an issuer of tokens"


def test_without_values_of_users_nodes_have_no_section_of_them() -> None:
    for role in ROLES:
        assert "auth" not in settings_of(manifests(), role)


def test_gateways_get_the_administrator_and_all_nodes_the_issuers() -> None:
    documents = manifests(AUTH)
    gateway, target = (settings_of(documents, role)["auth"] for role in ROLES)
    assert gateway.pop("admin") == "root"
    assert gateway.pop("admin_password_file") == "/run/secrets/admin/password"
    assert gateway == target
    assert target["required"] is True
    files = "/run/secrets/issuers"
    assert target["issuer"] == [
        {
            "name": "k8s",
            "url": "https://kubernetes.default.svc",
            "issuer": "https://kubernetes.default.svc.cluster.local",
            "audience": "forebay",
            "algorithms": ["RS256"],
            "ca_file": f"{files}/k8s/ca.crt",
            "token_file": f"{files}/k8s/token",
        },
        {
            "name": "idp",
            "url": "https://idp.example.com:8443/realms/ml",
            "audience": "forebay",
            "algorithms": ["RS256", "ES256"],
            "user_claim": "preferred_username",
            "roles_claim": "groups",
            "ca_file": f"{files}/idp/ca.crt",
        },
        {
            "name": "ci",
            "issuer": "https://ci.example.com",
            "audience": "forebay",
            "algorithms": ["EdDSA"],
            "jwks_file": f"{files}/ci/jwks.json",
        },
        {
            "name": "authn",
            "algorithms": ["HS256"],
            "aistore_claims": True,
            "secret_file": f"{files}/authn/hmac",
        },
    ]


@pytest.mark.parametrize("role", ROLES)
def test_each_file_of_the_settings_is_mounted(role: str) -> None:
    documents = manifests(AUTH)
    files = dict(mounted(template_of(documents, role)))
    auth = settings_of(documents, role)["auth"]
    named = [auth, *auth["issuer"]]
    paths = {v for part in named for k, v in part.items() if k.endswith("_file")}
    assert len(paths) == {"gateway": 6, "target": 5}[role]
    assert paths <= files.keys()
    assert {source: path for path, source in files.items() if path in paths} == {
        **({"forebay-admin/password": "/run/secrets/admin/password"} if role == "gateway" else {}),
        "token of the API": "/run/secrets/issuers/k8s/token",
        "kube-root-ca.crt/ca.crt": "/run/secrets/issuers/k8s/ca.crt",
        "idp/ca.crt": "/run/secrets/issuers/idp/ca.crt",
        "ci/jwks.json": "/run/secrets/issuers/ci/jwks.json",
        "authn/hmac": "/run/secrets/issuers/authn/hmac",
    }
    # Names of issuers may have dots and capitals, names of volumes may not.
    volumes = [v["name"] for v in template_of(documents, role)["spec"]["volumes"]]
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name) for name in volumes)


def test_the_chart_has_no_password_of_its_own() -> None:
    documents = manifests(AUTH)
    secrets = of_kind(documents, "Secret")
    assert [s["type"] for s in secrets] == ["kubernetes.io/service-account-token"]
    assert not any(s.get("data") or s.get("stringData") for s in secrets)
    values = yaml.safe_load((CHART / "values.yaml").read_text())["auth"]
    assert values == {
        "admin": "",
        "existingSecret": "",
        "secretKey": "password",
        "required": False,
        "optional": False,
        "issuers": [],
    }


def test_the_network_policy_lets_all_nodes_fetch_keys(tmp_path: Path) -> None:
    def issuer_ports(documents: list[Manifest], role: str) -> set[int]:
        policy = one(documents, "NetworkPolicy", f"rel-forebay-{role}")
        rules = [rule for rule in policy["spec"]["egress"] if "to" not in rule]
        return {p["port"] for rule in rules for p in rule["ports"] if p["protocol"] == "TCP"}

    for role in ROLES:
        # 6443 is the port of the API server behind its Service.
        assert {443, 6443, 8443} <= issuer_ports(manifests(AUTH), role)
    file = {"name": "ci", "audience": "a", "algorithms": ["RS256"], "existingSecret": "s"}
    documents = with_values(tmp_path, {"auth": {"issuers": [{**file, "jwksKey": "k"}]}})
    assert issuer_ports(documents, "gateway") == issuer_ports(manifests(), "gateway") == {53, 5353}


def test_monitors_send_the_token_of_a_secret_to_nodes_that_they_verify(tmp_path: Path) -> None:
    def endpoints(documents: list[Manifest]) -> list[Manifest]:
        return [m["spec"]["endpoints"][0] for m in of_kind(documents, "ServiceMonitor")]

    for endpoint in endpoints(manifests(AUTH)):
        assert endpoint["authorization"] == {
            "type": "Bearer",
            "credentials": {"name": "forebay-metrics", "key": "prometheus"},
        }
        assert "tlsConfig" not in endpoint
    for endpoint in endpoints(manifests(CHART / "ci/all-on-values.yaml")):
        assert "authorization" not in endpoint
    values = yaml.safe_load(AUTH.read_text()) | {"tls": {"secretName": "certs"}}
    encrypted = endpoints(with_values(tmp_path, values))
    assert len(encrypted) == 2
    for role, endpoint in zip(ROLES, encrypted, strict=True):
        pod = f"rel-forebay-{role}-0.rel-forebay-{role}-headless.ns1.svc.cluster.local"
        assert endpoint["tlsConfig"] == {
            "serverName": pod,
            "ca": {"secret": {"name": "certs", "key": "ca.crt"}},
        }


K8S = {"name": "k8s", "kubernetes": True, "audience": "forebay"}
URL = {"name": "idp", "url": "https://idp", "audience": "forebay", "algorithms": ["RS256"]}
ADMIN = {"admin": "root", "existingSecret": "admin"}
MONITOR = {"serviceMonitor": {"enabled": True}}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "admin-without-secret": ({"auth": {"admin": "root"}}, "auth.admin needs auth.existingSecret"),
    "secret-without-admin": ({"auth": {"existingSecret": "s"}}, "name this user"),
    "admin-with-blank": ({"auth": {**ADMIN, "admin": "a b"}}, "/auth/admin"),
    "password-as-value": ({"auth": {**ADMIN, "password": "p"}}, "password"),
    "required-alone": ({"auth": {"required": True}}, "auth.required=true needs"),
    "monitor-of-admin": (
        {"auth": ADMIN, "metrics": MONITOR},
        "needs metrics.serviceMonitor.tokenSecret",
    ),
    "monitor-of-required": (
        {"auth": {"required": True, "issuers": [K8S]}, "metrics": MONITOR},
        "needs metrics.serviceMonitor.tokenSecret",
    ),
    "issuer-twice": ({"auth": {"issuers": [K8S, K8S]}}, 'auth.issuers "k8s" is there twice'),
    "issuer-with-colon": ({"auth": {"issuers": [{**K8S, "name": "a:b"}]}}, "/auth/issuers/0/name"),
    "issuer-of-dots": ({"auth": {"issuers": [{**K8S, "name": ".."}]}}, "/auth/issuers/0/name"),
    "issuer-without-keys": (
        {"auth": {"issuers": [{k: v for k, v in URL.items() if k != "url"}]}},
        "needs one of kubernetes, url,",
    ),
    "issuer-with-two-files": (
        {"auth": {"issuers": [{**URL, "existingSecret": "s", "jwksKey": "a", "publicKeyKey": "b"}]}},
        "needs one of kubernetes, url,",
    ),
    "issuer-without-audience": (
        {"auth": {"issuers": [{**URL, "audience": None}]}},
        "needs audience",
    ),
    "issuer-without-algorithms": (
        {"auth": {"issuers": [{**URL, "algorithms": None}]}},
        "needs algorithms",
    ),
    "issuer-with-none": ({"auth": {"issuers": [{**URL, "algorithms": ["none"]}]}}, "/algorithms/0"),
    "secret-for-rsa": (
        {"auth": {"issuers": [{**URL, "existingSecret": "s", "sharedSecretKey": "k"}]}},
        "HS algorithms need a shared secret",
    ),
    "hs-by-url": ({"auth": {"issuers": [{**URL, "algorithms": ["HS256"]}]}}, "HS algorithms need"),
    "file-without-secret": ({"auth": {"issuers": [{**URL, "caKey": "c"}]}}, "needs existingSecret"),
    "secret-without-file": (
        {"auth": {"issuers": [{**URL, "existingSecret": "s"}]}},
        "existingSecret needs one of",
    ),
    "kubernetes-with-ca": (
        {"auth": {"issuers": [{**K8S, "existingSecret": "s", "caKey": "c"}]}},
        "kubernetes=true brings the CA",
    ),
    "credentials-in-url": (
        {"auth": {"issuers": [{**URL, "url": "https://a:b@idp"}]}},
        "/auth/issuers/0/url",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_values_of_users_that_cannot_work_are_refused(name: str, tmp_path: Path) -> None:
    values, message = REFUSED[name]
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(without_none(values)))
    done = helm("template", "rel", CHART, "--kube-version", "1.34", "--values", file)
    assert done.returncode != 0, "it was rendered"
    assert message in done.stderr, done.stderr


def without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_none(v) for k, v in value.items() if v is not None}
    return [without_none(v) for v in value] if isinstance(value, list) else value


def test_the_notes_tell_how_to_log_in_or_that_everything_is_open(tmp_path: Path) -> None:
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    # `helm template` leaves the notes out.
    (chart / "templates/NOTES.txt").rename(chart / "templates/notes.yaml")

    def notes(values: Path) -> str:
        options = ["--debug", "-s", "templates/notes.yaml", "--values", str(values)]
        return helm("template", "rel", chart, "--kube-version", "1.34", *options).stdout

    users, nobody = notes(AUTH), notes(CHART / "ci/minimal-values.yaml")
    login = "forebay auth login root --password-file /run/secrets/admin/password"
    assert login in users
    assert users.index(login) < users.index("forebay cluster info")
    assert "k8s:system:serviceaccount:" in users
    assert "without encryption" in users
    assert "everything" not in users
    assert "auth login" not in nobody
    assert "join-token" not in users + nobody
    assert "node join-token create --uses 3 |" in notes(CHART / "ci/join-token-values.yaml")
    assert "every client that reaches a node may read and\nwrite everything" in nobody


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """One gateway and two targets, with an administrator and an issuer with a shared secret."""
    folder = tmp_path_factory.mktemp("users")
    issuer = {"name": "ais", "algorithms": ["HS256"], "existingSecret": "ais"}
    values = {
        "gateway": {"replicas": 1},
        "target": {"replicas": 2},
        "auth": {
            "admin": "root",
            "existingSecret": "admin",
            "required": True,
            "issuers": [{**issuer, "sharedSecretKey": "hmac"}],
        },
    }
    secrets = {"admin/password": f"{PASSWORD}\n", "ais/hmac": SHARED_SECRET}
    documents = with_values(folder, values)
    with running(documents, folder, secrets) as pods:
        log_in(pods)
        yield pods


def status(pod: Pod, path: str, token: str = "") -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        request = urllib.request.Request(f"{pod.here}{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_probes_need_no_token_and_metrics_need_the_right_to_show_the_cluster(
    release: Release,
) -> None:
    def token_of(user: str) -> str:
        done = forebay(release, "auth", "token", "create", "--user", user, "--ttl", "1h")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    for command in (
        ("role", "add", "metrics", "--right", "show-cluster"),
        ("role", "add", "blind", "--right", "list-buckets"),
        ("user", "add", "prometheus", "--role", "metrics"),
        ("user", "add", "other", "--role", "blind"),
    ):
        done = forebay(release, "auth", *command)
        assert done.returncode == 0, done.stderr
    prometheus, other = token_of("prometheus"), token_of("other")
    for pod in release.pods:
        assert all(pod.answers(p) for p in ("startupProbe", "livenessProbe", "readinessProbe"))
        assert status(pod, "/metrics") == 401, pod.name
        wait_until(lambda p=pod: status(p, "/metrics", prometheus) == 200, "metrics")  # type: ignore[misc]
        assert status(pod, "/metrics", other) == 403, pod.name


def test_helm_test_logs_in_and_out(release: Release) -> None:
    done = release.run_test_pod()
    for name, step in done.items():
        assert step.returncode == 0, f"{name}: {step.stdout}{step.stderr}"
    assert next(iter(done)) == "login"
    assert list(done)[-1] == "logout"
    assert not [*(release.folder / "test").glob("config/forebay/tokens/*")]


def test_the_program_finds_its_login_in_a_folder_that_pods_can_write(release: Release) -> None:
    template = one(release.documents, "StatefulSet", "rel-forebay-gateway")["spec"]["template"]
    container = template["spec"]["containers"][0]
    (home,) = [e["value"] for e in container["env"] if e["name"] == "XDG_CONFIG_HOME"]
    (name,) = [m["name"] for m in container["volumeMounts"] if m["mountPath"] == home]
    (volume,) = [v for v in template["spec"]["volumes"] if v["name"] == name]
    assert volume["emptyDir"]["medium"] == "Memory"
    done = forebay(release, "auth", "whoami", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert [row["user"] for row in json.loads(done.stdout)] == ["root"]
    empty = str(release.folder / "nowhere")
    assert forebay(release, "cluster", "info", XDG_CONFIG_HOME=empty).returncode == 5


def test_gateways_and_targets_accept_the_tokens_of_an_issuer(release: Release) -> None:
    def token(secret: str) -> str:
        def part(value: dict[str, Any]) -> str:
            return encoded(json.dumps(value).encode())

        claims = {"sub": "ann", "exp": int(time.time()) + 600}
        signed = f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(claims)}"
        return f"{signed}.{encoded(hmac.digest(secret.encode(), signed.encode(), hashlib.sha256))}"

    done = forebay(release, "auth", "user", "add", "ais:ann", "--role", "viewer")
    assert done.returncode == 0, done.stderr
    good, bad = token(SHARED_SECRET), token("another secret of nobody here")
    for pod in release.pods:
        wait_until(lambda p=pod: status(p, "/metrics", good) == 200, f"{pod.name}: the token")  # type: ignore[misc]
        assert status(pod, "/metrics", bad) == 401, pod.name


def filled(text: str) -> str:
    """A value of a compose file as Compose fills it in where no variable is set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def test_compose_adds_users_to_the_nodes_of_its_other_file(forebay_bin: Path, tmp_path: Path) -> None:
    base, users = (
        yaml.safe_load((REPOSITORY / "deploy" / name).read_text())
        for name in ("compose.yaml", "compose.users.yaml")
    )
    assert users["services"].keys() <= base["services"].keys()
    password = tmp_path / "admin-password"
    for name, service in users["services"].items():
        role = base["services"][name]["command"][0]
        env = {k: filled(v) for k, v in service["environment"].items()}
        assert env["FOREBAY_AUTH__REQUIRED"] == "true"
        # The checks of the other file need no token.
        assert not {"healthcheck", "depends_on"} & service.keys()
        if role == "gateway":
            (secret,) = service["secrets"]
            assert env["FOREBAY_AUTH__ADMIN_PASSWORD_FILE"] == f"/run/secrets/{secret['source']}"
            assert (secret["uid"], secret["mode"]) == ("65532", "0400")
            assert users["secrets"][secret["source"]] == {"environment": "FOREBAY_ADMIN_PASSWORD"}
            assert service["tmpfs"][0].startswith(env["XDG_CONFIG_HOME"])
            env["FOREBAY_AUTH__ADMIN_PASSWORD_FILE"] = str(password)
        assert understood(forebay_bin, role, env, tmp_path), name


def understood(forebay_bin: Path, role: str, env: dict[str, str], folder: Path) -> bool:
    """Whether a node takes these variables: with a taken port it ends after it has read them."""
    file = folder / f"{role}.toml"
    (folder / "secret").write_text("a text that all nodes share\n")
    (folder / "secret").chmod(0o600)
    file.write_text(
        f'[cluster]\ngateways = ["http://127.0.0.1:7400"]\nsecret_file = "{folder}/secret"\n'
        f'[node]\nid = "{role}-1"\ndir = "{folder}/{role}"\n'
        + (f'[[disk]]\npath = "{folder}/disk"\nsize = "1GiB"\n' if role == "target" else "")
    )
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = {"FOREBAY_LISTEN__HTTP": f"127.0.0.1:{taken.getsockname()[1]}"}
        command = [str(forebay_bin), role, "--config", str(file)]

        def outcome(**more: str) -> int:
            variables = {**os.environ, **listen, **env, **more}
            return subprocess.run(command, env=variables, capture_output=True, timeout=30).returncode

        assert outcome(FOREBAY_AUTH__NO_SUCH="1") == BAD_CONFIG
        return outcome() == PORT_IN_USE


def drop_in() -> str:
    """The drop-in for users of the page on operations."""
    page = (REPOSITORY / "docs/operations.md").read_text()
    found = re.search(r"^cat > \S+/users\.conf <<'EOF'\n(.*?)^EOF$", page, re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


def test_the_drop_in_for_users_names_settings_that_a_gateway_has(
    forebay_bin: Path, tmp_path: Path
) -> None:
    env = dict(re.findall(r"^Environment=(\w+)=(.*)$", drop_in(), re.MULTILINE))
    (name,) = re.findall(r"^LoadCredential=([\w-]+):/etc/forebay/", drop_in(), re.MULTILINE)
    assert env["FOREBAY_AUTH__ADMIN_PASSWORD_FILE"] == f"%d/{name}"
    env["FOREBAY_AUTH__ADMIN_PASSWORD_FILE"] = str(tmp_path / name)
    assert understood(forebay_bin, "gateway", env, tmp_path)


@pytest.mark.parametrize("unit", ["forebay.service", "forebay@.service"])
def test_systemd_finds_no_fault_with_the_drop_in_for_users(
    unit: str, forebay_bin: Path, tmp_path: Path
) -> None:
    analyze = have("systemd-analyze")
    text = (REPOSITORY / "deploy/systemd" / unit).read_text()
    copy = tmp_path / unit.replace("@", "@gateway")
    copy.write_text(text.replace("/usr/local/bin/forebay", str(forebay_bin)))
    folder = tmp_path / f"{copy.name}.d"
    folder.mkdir()
    (folder / "users.conf").write_text(drop_in())

    def faults() -> list[str]:
        command = [analyze, "verify", "--man=no", str(copy)]
        done = subprocess.run(command, capture_output=True, text=True)
        return [line for line in done.stderr.splitlines() if str(tmp_path) in line]

    assert not faults()
    (folder / "users.conf").write_text(drop_in() + "NoSuchSetting=1\n")
    assert faults(), "the drop-in was not read"


def encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
