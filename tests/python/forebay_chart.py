"""The chart in deploy/helm: rendered by helm, and its pods run as processes of this machine."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import ssl
import subprocess
import tomllib
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from forebay_cluster import REPOSITORY, STOP_DEADLINE_S, binary, free_ports, wait_until

CHART = REPOSITORY / "deploy/helm/forebay"
NAMESPACE = "ns1"
Manifest = dict[str, Any]


def values_files() -> list[Path]:
    """The sets of values in ci/ that the chart must take."""
    return sorted(CHART.glob("ci/*-values.yaml"))


@functools.cache
def tool(script: str, variable: str, *arguments: str) -> str:
    """Returns the tool that a script of ci/ finds, builds or installs; without it, skips, or fails if
    `variable` is set."""
    done = subprocess.run([REPOSITORY / "ci" / script, *arguments], stdout=subprocess.PIPE, text=True)
    if done.returncode == 3 and not os.environ.get(variable):
        pytest.skip(f"ci/{script} found nothing")
    assert done.returncode == 0, f"ci/{script} ended with {done.returncode}"
    return done.stdout.strip()


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [tool("helm.sh", "FOREBAY_REQUIRE_HELM"), *arguments]
    environment = {k: v for k, v in os.environ.items() if k != "KUBECONFIG"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)


@functools.cache
def render(values: Path | None = None, kubernetes: str = "1.34", *options: str) -> str:
    """The manifests, as text."""
    named = ["--values", str(values)] if values else []
    done = helm(
        "template", "rel", CHART, "-n", NAMESPACE, "--kube-version", kubernetes, *named, *options
    )
    assert done.returncode == 0, f"{values}: {done.stderr}"
    return done.stdout


def manifests(values: Path | None = None, kubernetes: str = "1.34", *options: str) -> list[Manifest]:
    documents = yaml.safe_load_all(render(values, kubernetes, *options))
    return [document for document in documents if document]


def with_values(folder: Path, values: object) -> list[Manifest]:
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    return manifests(file)


def notes(folder: Path, values: Path | None = None) -> str:
    """Returns the notes of `helm install`. helm renders them only where a cluster answers, so a copy of
    the chart in `folder` has them as a manifest."""
    copy = folder / "chart-with-notes"
    shutil.copytree(CHART, copy, dirs_exist_ok=True)
    text = (copy / "templates/NOTES.txt").read_text()
    (copy / "templates/_notes.tpl").write_text(f'{{{{ define "notes" }}}}{text}{{{{ end }}}}')
    manifest = 'kind: Notes\ntext: |\n{{ include "notes" . | indent 2 }}\n'
    (copy / "templates/notes.yaml").write_text(manifest)
    named = ["--values", str(values)] if values else []
    done = helm("template", "rel", copy, "-n", NAMESPACE, "-s", "templates/notes.yaml", *named)
    assert done.returncode == 0, done.stderr
    return str(yaml.safe_load(done.stdout)["text"])


def of_kind(documents: Sequence[Manifest], kind: str) -> list[Manifest]:
    return [d for d in documents if d["kind"] == kind]


def one(documents: Sequence[Manifest], kind: str, name: str) -> Manifest:
    found = [d for d in of_kind(documents, kind) if d["metadata"]["name"] == name]
    assert len(found) == 1, f"{len(found)} of {kind}/{name}"
    return found[0]


def settings_of(documents: Sequence[Manifest], role: str, full: str = "rel-forebay") -> dict[str, Any]:
    text = one(documents, "ConfigMap", f"{full}-{role}")["data"][f"{role}.toml"]
    return tomllib.loads(text)


def template_of(documents: Sequence[Manifest], role: str) -> Manifest:
    template: Manifest = one(documents, "StatefulSet", f"rel-forebay-{role}")["spec"]["template"]
    return template


def environment_of(
    container: Manifest, fields: Mapping[str, str], documents: Sequence[Manifest] = ()
) -> dict[str, str]:
    """What Kubernetes would put into the environment: fields of the pod, Secrets of the chart, and
    $(NAME) filled in."""
    secrets = {s["metadata"]["name"]: s.get("stringData", {}) for s in of_kind(documents, "Secret")}
    result: dict[str, str] = {}
    for entry in container.get("env", []):
        if "value" in entry:
            text = str(entry["value"])
        elif "fieldRef" in entry["valueFrom"]:
            text = fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        else:
            secret = entry["valueFrom"]["secretKeyRef"]
            text = secrets.get(secret["name"], {}).get(secret["key"], f"from-{secret['name']}")
        result[entry["name"]] = expand(text, result)
    return result


def expand(text: str, environment: Mapping[str, str]) -> str:
    return re.sub(r"\$\((\w+)\)", lambda name: environment.get(name[1], name[0]), text)


def mounted(template: Manifest) -> Iterator[tuple[str, str]]:
    """The files that Secrets, ConfigMaps and tokens become in the first container of a pod, each with
    its source: `SECRET/KEY`, `CONFIGMAP/KEY` or `token of AUDIENCE`."""
    spec = template["spec"]
    folders = {m["name"]: m["mountPath"] for m in spec["containers"][0]["volumeMounts"]}
    for volume in spec["volumes"]:
        folder = folders.get(volume["name"])
        sources = volume.get("projected", {}).get("sources") or [volume]
        for source in sources if folder else []:
            for kind, field_of_name in (("secret", "secretName"), ("configMap", "name")):
                for item in source.get(kind, {}).get("items", []):
                    yield f"{folder}/{item['path']}", f"{source[kind][field_of_name]}/{item['key']}"
            if token := source.get("serviceAccountToken"):
                yield f"{folder}/{token['path']}", f"token of {token.get('audience', 'the API')}"


@dataclass
class Pod:
    """A container of the chart, as a process: its URL inside the cluster, and the one here."""

    name: str
    role: str
    inside: str
    port: int
    command: list[str]
    env: dict[str, str]
    container: Manifest
    log: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def here(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answers(self, probe: str) -> bool:
        """Whether it answers one of its probes as Kubernetes would want."""
        get = self.container[probe]["httpGet"]
        url = self.here.replace("http", get.get("scheme", "HTTP").lower(), 1) + get["path"]
        try:
            # Kubernetes verifies no certificate of a probe.
            anyone = ssl._create_unverified_context()
            with urllib.request.urlopen(url, timeout=1, context=anyone) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


@dataclass
class Release:
    """All pods of a rendered chart on this machine, each with folders of its own.

    Names of pods in URLs become loopback ports, paths become folders of the test; nothing else of
    what was rendered changes.
    """

    documents: list[Manifest]
    folder: Path
    # Texts of Secrets that the chart does not make, by `SECRET/KEY`.
    secrets: Mapping[str, str] = field(default_factory=dict)
    pods: list[Pod] = field(default_factory=list)

    def plan(self) -> None:
        sets = of_kind(self.documents, "StatefulSet")
        port = free_ports(sum(s["spec"]["replicas"] for s in sets))
        for stateful in sets:
            for index in range(stateful["spec"]["replicas"]):
                self.pods.append(self._pod(stateful, index, port))
                port += 1
        for pod in self.pods:
            self._wait_for_state(pod)

    def _pod(self, stateful: Manifest, index: int, port: int) -> Pod:
        name = f"{stateful['metadata']['name']}-{index}"
        container = stateful["spec"]["template"]["spec"]["containers"][0]
        env = environment_of(container, {"metadata.name": name}, self.documents)
        folder = self.folder / name
        folder.mkdir()
        return Pod(
            name=name,
            role=container["name"],
            inside=env["FOREBAY_LISTEN__ADVERTISE"],
            port=port,
            command=[str(binary()), *container["args"]],
            env=env,
            container=container,
            log=folder / "log",
        )

    def _wait_for_state(self, pod: Pod) -> None:
        """Writes the pod's settings where this machine can use them."""
        folder = self.folder / pod.name
        config = one(self.documents, "ConfigMap", pod.name.rsplit("-", 1)[0])
        for name, text in config["data"].items():
            (folder / name).write_text(self._moved(text, folder))
        secret = self.folder / "cluster-secret"
        secret.write_text("a text that all nodes share\n")
        secret.chmod(0o600)
        for source, text in self.secrets.items():
            self._mount(pod, source, text)
        pod.command = [self._moved(word, folder) for word in pod.command]
        pod.env = {key: self._moved(value, folder) for key, value in pod.env.items()}
        pod.env["FOREBAY_LISTEN__HTTP"] = f"127.0.0.1:{pod.port}"

    def _mount(self, pod: Pod, source: str, text: str) -> None:
        """Writes the file that a Secret, as `SECRET/KEY`, becomes in the pod, if it is mounted there."""
        stateful = one(self.documents, "StatefulSet", pod.name.rsplit("-", 1)[0])
        for path, mounted_source in mounted(stateful["spec"]["template"]):
            if mounted_source == source:
                file = Path(self._moved(path, self.folder / pod.name))
                file.parent.mkdir(parents=True, exist_ok=True)
                file.touch(0o640)
                file.write_text(text)
                file.chmod(0o600)

    def add_secret(self, source: str, text: str) -> None:
        """Adds a Secret while pods run: the file appears in the pods that mount it."""
        for pod in self.pods:
            self._mount(pod, source, text)

    def _moved(self, text: str, folder: Path) -> str:
        for pod in self.pods:
            text = text.replace(pod.inside, pod.here)
        text = text.replace("/var/lib/forebay", str(folder))
        text = text.replace("/run/secrets/forebay/cluster", str(self.folder / "cluster-secret"))
        text = text.replace("/run/secrets/", f"{folder}/secrets/")
        text = text.replace("/run/forebay", f"{folder}/run")
        return text.replace("/etc/forebay/", f"{folder}/")

    def of_role(self, role: str) -> list[Pod]:
        """The pods of this role; all if it is empty."""
        return [pod for pod in self.pods if role in ("", pod.role)]

    def start(self, role: str = "") -> None:
        for pod in self.of_role(role):
            with pod.log.open("ab") as output:
                pod.process = subprocess.Popen(
                    pod.command, stdout=output, stderr=output, env={**os.environ, **pod.env}
                )

    def wait_ready(self, role: str = "") -> None:
        for pod in self.of_role(role):
            process = pod.process
            assert process
            wait_until(
                lambda p=pod, q=process: p.answers("readinessProbe") or q.poll() is not None,  # type: ignore[misc]
                f"{pod.name} ready; log in {pod.log}",
                30,
            )
            assert process.poll() is None, f"{pod.name} ended:\n{pod.log.read_text()}"

    def stop(self, role: str = "") -> None:
        running = [pod.process for pod in self.of_role(role) if pod.process]
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def run_test_pod(self) -> dict[str, subprocess.CompletedProcess[str]]:
        """The steps of `helm test`, in order, until one fails."""
        pod = next(d for d in of_kind(self.documents, "Pod"))
        endpoint = one(self.documents, "Service", pod["metadata"]["name"].removesuffix("-test"))
        port = endpoint["spec"]["ports"][0]["port"]
        inside = f"http://{endpoint['metadata']['name']}.{NAMESPACE}:{port}"
        gateway = next(p for p in self.pods if p.role == "gateway")
        folder = self.folder / "test"
        folder.mkdir()
        for name, text in one(self.documents, "ConfigMap", pod["metadata"]["name"])["data"].items():
            (folder / name).write_text(text)
        fields = {"metadata.uid": str(uuid.uuid4())}
        done: dict[str, subprocess.CompletedProcess[str]] = {}
        for step in [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]:
            env = environment_of(step, fields)
            env["FOREBAY_ENDPOINT"] = env["FOREBAY_ENDPOINT"].replace(inside, gateway.here)
            env = {key: value.replace("/work/", f"{folder}/") for key, value in env.items()}
            words = [expand(word, env) for word in step["args"]]
            words = [w.replace("/etc/forebay-test/", f"{folder}/") for w in words]
            words = [w.replace("/work/", f"{folder}/") for w in words]
            words = [w.replace("/run/secrets/", f"{self.folder / gateway.name}/secrets/") for w in words]
            done[step["name"]] = subprocess.run(
                [binary(), *words], env={**os.environ, **env}, capture_output=True, text=True
            )
            if done[step["name"]].returncode != 0:
                break
        return done


@contextlib.contextmanager
def running(
    documents: list[Manifest], folder: Path, secrets: Mapping[str, str] | None = None
) -> Iterator[Release]:
    """A release whose pods are all ready."""
    release = Release(documents, folder, secrets or {})
    release.plan()
    try:
        release.start()
        release.wait_ready()
        yield release
    finally:
        release.stop()


def forebay(release: Release, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs the program with the environment of the gateway, like `kubectl exec` in its pod."""
    pod = release.pods[0]
    env = {**os.environ, **pod.env, "FOREBAY_ENDPOINT": pod.here, **more}
    command = [pod.command[0], *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)


def log_in(release: Release) -> None:
    """Runs the command of the notes until the leading gateway has created the administrator."""
    password = release.folder / release.pods[0].name / "secrets/admin/password"
    login = ("auth", "login", "root", "--password-file", str(password))
    wait_until(lambda: forebay(release, *login).returncode == 0, "the administrator logs in")


def have(program: str) -> str:
    """The path of a program that not every machine has; skips without it."""
    path = shutil.which(program)
    if not path:
        pytest.skip(f"{program} not found")
    return path
