"""The runner of pods (tests/pods) does what Kubernetes does, where that needs no pods and no root."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import REPOSITORY
from forebay_chart import CHART, manifests, of_kind
from forebay_pods import content
from pods.api import Api
from pods.cluster import what_is_missing
from pods.container import rights
from pods.image import Image, unpack
from pods.manifest import Files, environment, expand, words, write_volume

sys.path.insert(0, str(REPOSITORY / "deploy"))
import oci_image  # noqa: E402

IMAGE = Image(Path("/"), ["/usr/local/bin/forebay"], ["--help"], {}, 1001, 1002, "/", True)
STATEFUL_SETS = "/apis/apps/v1/namespaces/ns1/statefulsets"


def test_a_machine_without_root_or_tools_gets_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert "sudo make pods-test" in what_is_missing()
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool == "ip" else f"/bin/{tool}")
    assert what_is_missing() == "programs are missing: apt-get install iproute2"
    monkeypatch.setattr(shutil, "which", lambda tool: f"/bin/{tool}")
    assert what_is_missing() == ""


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    """The API for the chart with its defaults."""
    server = Api("127.0.0.1", tmp_path, manifests, port=0)
    yield server
    server.close()


def status_of(api: Api, path: str, token: str) -> int:
    """The status of a GET by HTTPS, with the CA that pods get."""
    url = f"https://127.0.0.1:{api.port}{path}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        context = ssl.create_default_context(cadata=api.ca)
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            assert json.load(answer)["spec"]["replicas"] == 3
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_pod_may_read_its_stateful_set_and_nothing_else(api: Api) -> None:
    token = api.token("rel-forebay-target-0", "rel-forebay")
    assert status_of(api, f"{STATEFUL_SETS}/rel-forebay-target", token) == 200
    assert status_of(api, f"{STATEFUL_SETS}/rel-forebay-gateway", token) == 403
    assert status_of(api, "/api/v1/namespaces/ns1/secrets", token) == 403
    assert status_of(api, f"{STATEFUL_SETS}/rel-forebay-target", "another") == 401
    stranger = api.token("some-pod", "another-account")
    assert status_of(api, f"{STATEFUL_SETS}/rel-forebay-target", stranger) == 403
    assert api.requests[0] == ("rel-forebay-target-0", f"{STATEFUL_SETS}/rel-forebay-target", 200)


def test_a_chart_without_the_role_gives_no_right(tmp_path: Path) -> None:
    documents = manifests(CHART / "ci/no-drain-values.yaml")
    api = Api("127.0.0.1", tmp_path, lambda: documents, port=0)
    token = api.token("rel-forebay-target-0", "rel-forebay")
    assert status_of(api, f"{STATEFUL_SETS}/rel-forebay-target", token) == 403
    api.close()


def node_of(role: str) -> dict[str, object]:
    (stateful,) = (s for s in of_kind(manifests(), "StatefulSet") if s["metadata"]["name"].endswith(role))
    spec: dict[str, object] = stateful["spec"]["template"]["spec"]
    return spec


def test_environment_and_words_are_filled_in_as_kubernetes_does() -> None:
    spec = node_of("target")
    container = spec["containers"][0]  # type: ignore[index]
    pod = {"metadata": {"name": "rel-forebay-target-2"}}
    env = environment(container, pod, Files(lambda _: ""), {"PATH": "/usr/local/bin"})
    assert env["FOREBAY_NODE__ID"] == "rel-forebay-target-2"
    assert env["FOREBAY_LISTEN__ADVERTISE"].startswith("http://rel-forebay-target-2.")
    assert words(container, IMAGE, env)[:2] == ["/usr/local/bin/forebay", "target"]
    assert expand("$(A)-$(B)", {"A": "1"}) == "1-$(B)"


def test_the_command_of_the_image_is_replaced_in_parts_as_kubernetes_does() -> None:
    for container, expected in (
        ({}, ["/usr/local/bin/forebay", "--help"]),
        ({"args": ["target"]}, ["/usr/local/bin/forebay", "target"]),
        ({"command": ["/bin/other"]}, ["/bin/other"]),
        ({"command": ["/bin/other"], "args": ["a"]}, ["/bin/other", "a"]),
    ):
        assert words(container, IMAGE, {}) == expected


def test_the_unpacked_image_has_what_the_packed_one_says(tmp_path: Path) -> None:
    program = Path("/bin/true")
    image = unpack(program, tmp_path)
    said = oci_image.configuration(oci_image.Release("n", "0", "", 0, os.uname().machine), "d")["config"]
    assert [image.entrypoint, image.arguments] == [said["Entrypoint"], said["Cmd"]]
    assert f"{image.user}:{image.group}" == said["User"]
    assert [f"{name}={value}" for name, value in image.env.items()] == said["Env"]
    assert image.folder == said["WorkingDir"]
    assert (image.root / image.entrypoint[0].lstrip("/")).read_bytes() == program.read_bytes()
    assert (image.root / "etc/passwd").read_text() == oci_image.PASSWD
    # Shared libraries of this machine are added if the program needs them.
    libraries = {file.name for file in image.root.rglob("*.so*")}
    assert bool(libraries) != image.is_static


def test_a_container_gets_the_user_and_the_rights_of_its_security_context() -> None:
    spec = node_of("target")
    found = rights(spec, spec["containers"][0], IMAGE)  # type: ignore[index]
    assert (found["user"], found["group"], found["groups"]) == (65532, 65532, [65532])
    assert found["read_only_root"] and found["drop_capabilities"] and found["no_new_privileges"]
    with pytest.raises(RuntimeError, match="must not run as root"):
        rights({"securityContext": {"runAsNonRoot": True}}, {"name": "some"}, replace(IMAGE, user=0))


def test_a_container_without_a_user_gets_that_of_the_image() -> None:
    found = rights({"securityContext": {"runAsNonRoot": True}}, {"name": "some"}, IMAGE)
    assert (found["user"], found["group"]) == (1001, 1002)
    assert rights({"securityContext": {"runAsUser": 7}}, {"name": "some"}, IMAGE)["group"] == 0


@pytest.mark.skipif(os.getuid() != 0, reason="files of root need root")
def test_files_of_a_volume_have_the_mode_and_the_group_of_the_pod(tmp_path: Path) -> None:
    files = Files(lambda pod: f"token of {pod}", config_maps={"ca": {"ca.crt": "pem"}})
    source = [{"serviceAccountToken": {"path": "token"}}, {"configMap": {"name": "ca"}}]
    volume = {"projected": {"defaultMode": 0o440, "sources": source}}
    write_volume(volume, "pod-0", files, tmp_path / "volume", os.getgid())
    assert (tmp_path / "volume/token").read_text() == "token of pod-0"
    assert (tmp_path / "volume/ca.crt").stat().st_mode & 0o777 == 0o440


def test_the_content_of_an_object_under_load_follows_from_its_name() -> None:
    assert content("a") == content("a") != content("b")
