"""A small Kubernetes for one release: takes manifests as `kubectl apply` does, and runs their pods."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pods.api import Api
from pods.image import Image, unpack
from pods.manifest import Files, Manifest, of_kind
from pods.network import Network
from pods.pod import Ended, Machine, Pod
from pods.service import Forwarder, Names
from pods.stateful import Controller, StatefulSet

DOMAIN = "cluster.local"
TOOLS = {
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "openssl": "openssl",
    "ldd": "libc-bin",
}


def what_is_missing() -> str:
    """Returns the requirements of pods that this machine lacks, with the remedy; empty if it lacks nothing."""
    if os.getuid() != 0:
        return "pods run in namespaces, which need root: sudo make pods-test"
    packages = sorted({package for tool, package in TOOLS.items() if not shutil.which(tool)})
    return f"programs are missing: apt-get install {' '.join(packages)}" if packages else ""


class Cluster:
    """Attributes:
    network: With `machine_outside`, the address of this machine for clients outside.
    api: The API server, which keeps a list of all requests.
    """

    def __init__(self, folder: Path, program: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._documents: list[Manifest] = []
        self._images: dict[str, Image] = {}
        self._unpacked: dict[Path, Image] = {}
        self._default = self._unpack(program)
        self.network = Network()
        self._forwarder = Forwarder()
        self._services: dict[str, str] = {}
        self._listening: dict[str, list[tuple[str, int]]] = {}
        self.api_address = self.network.service_address()
        self.api = Api(self.api_address, folder, lambda: self._documents)
        self._names = Names(self.network.machine, self._addresses)
        self.resolver = folder / "resolv.conf"
        self.files = Files(self._token)
        self.files.config_maps["kube-root-ca.crt"] = {"ca.crt": self.api.ca}
        self.machine = Machine(
            network=self.network,
            files=self.files,
            folder=folder,
            image=lambda name: self._images.get(name, self._default),
            env={"KUBERNETES_SERVICE_HOST": self.api_address, "KUBERNETES_SERVICE_PORT": "443"},
            resolver=self.resolver,
        )
        self.controller = Controller()

    @property
    def image(self) -> Image:
        """The image of all containers that `add_image` does not name."""
        return self._default

    def add_image(self, name: str, program: Path) -> None:
        """Another program for the containers whose image has this name."""
        self._images[name] = self._unpack(program)

    def add_secret(self, name: str, content: Mapping[str, str]) -> None:
        self.files.secrets[name] = dict(content)

    def forward(self, port: int, to: int) -> str:
        """Lets pods reach a port of this machine's loopback: returns the address for them."""
        self._forwarder.listen(self.network.machine, port, lambda: [("127.0.0.1", to)])
        return f"{self.network.machine}:{port}"

    def apply(self, documents: list[Manifest]) -> None:
        """Installs or upgrades: what is not in `documents` any more goes."""
        hooks = [d for d in documents if "helm.sh/hook" in d["metadata"].get("annotations", {})]
        documents = [document for document in documents if document not in hooks]
        self._documents = documents
        self._write_resolver(documents[0]["metadata"]["namespace"])
        for config in of_kind(documents, "ConfigMap"):
            self.files.config_maps[config["metadata"]["name"]] = config["data"]
        for secret in of_kind(documents, "Secret"):
            self._add_rendered(secret)
        self._apply_services(of_kind(documents, "Service"))
        self.controller.change(lambda sets: self._apply_sets(sets, documents))

    def uninstall(self) -> None:
        """Deletes all that was applied, the rights of pods, too. Claims stay, as those of the chart do."""
        self._documents = []
        sets = self.controller.sets
        for stateful in sets.values():
            stateful.is_deleted = True
        self.wait(lambda: not any(stateful.pods for stateful in sets.values()), "all pods end", 120)
        self.controller.change(lambda sets: sets.clear())
        self._apply_services([])

    def close(self) -> None:
        """Ends everything, in whichever state it is."""
        self.controller.close()
        for pod in self.controller.pods():
            with contextlib.suppress(RuntimeError, OSError):
                pod.kill()
        self.api.close()
        self._names.close()
        self._forwarder.close()
        self.network.close()

    def wait(self, condition: Callable[[], bool], what: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not condition():
            if self.controller.error:
                raise self.controller.error
            if time.monotonic() > end:
                states = [f"{p.name} ready={p.is_ready} restarts={p.restarts}" for p in self.controller.pods()]
                raise TimeoutError(f"not within {seconds:g} s: {what}; {'; '.join(states)}; {self.folder}")
            time.sleep(0.1)

    def wait_rolled_out(self, seconds: float = 180) -> None:
        """Waits as `kubectl rollout status` does."""
        sets = self.controller.sets
        self.wait(lambda: all(s.is_rolled_out for s in sets.values()), "all pods are updated and ready", seconds)

    def pod(self, name: str) -> Pod:
        return next(pod for pod in self.controller.pods() if pod.name == name)

    def ended(self) -> list[Ended]:
        """The pods that were stopped since the start, in order."""
        return [ended for stateful in self.controller.sets.values() for ended in stateful.ended]

    def service_address(self, name: str) -> str:
        return self._services[name]

    def new_client(self, name: str) -> list[str]:
        """The beginning of a command that runs beside the pods, with their names."""
        space, _ = self.network.add_pod(name)
        return self.network.command_with_names(space, self.resolver)

    def client_outside(self) -> list[str]:
        """The same for a machine outside, which has no route to pods and Services."""
        return self.network.command(self.network.outside)

    def run_pod(self, manifest: Manifest, documents: list[Manifest]) -> int:
        """Runs a pod of a hook, with the ConfigMaps of `documents`, to its end: returns its exit code."""
        for config in of_kind(documents, "ConfigMap"):
            self.files.config_maps[config["metadata"]["name"]] = config["data"]
        name, namespace = manifest["metadata"]["name"], manifest["metadata"]["namespace"]
        pod = Pod(name, namespace, manifest, self.machine)
        pod.start()
        self.wait(lambda: pod.container.exit_code() is not None, f"pod {name} ends; its log is {pod.log}", 60)
        code = pod.container.exit_code()
        pod.kill()
        return 1 if code is None else code

    def leftovers(self) -> list[str]:
        """Returns the rest of the pods after `close`: processes, mounts, namespaces and devices."""
        found = [f"namespace {name}" for name in self.network.spaces()]
        found += [f"device {name}" for name in self.network.devices()]
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        found += [f"mount {line.split()[4]}" for line in mounts if str(self.folder) in line]
        return found + self.processes()

    def processes(self) -> list[str]:
        """The processes of pods."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if f"{self.folder}/pods/" in (process / "mountinfo").read_text():
                    command = (process / "cmdline").read_bytes().replace(b"\0", b" ")
                    found.append(f"process {process.name}: {command.decode(errors='replace')}")
        return found

    def _unpack(self, program: Path) -> Image:
        if program in self._unpacked:
            return self._unpacked[program]
        folder = self.folder / f"image-{len(list(self.folder.glob('image-*')))}"
        folder.mkdir()
        self._unpacked[program] = unpack(program, folder)
        return self._unpacked[program]

    def _token(self, pod: str) -> str:
        spec = next(p.spec for p in self.controller.sets[pod.rsplit("-", 1)[0]].pods.values())
        return self.api.token(pod, spec["serviceAccountName"])

    def _write_resolver(self, namespace: str) -> None:
        search = f"{namespace}.svc.{DOMAIN} svc.{DOMAIN} {DOMAIN}"
        self.resolver.write_text(f"nameserver {self.network.machine}\nsearch {search}\noptions ndots:5\n")

    def _add_rendered(self, secret: Manifest) -> None:
        name = secret["metadata"]["name"]
        if secret["type"] == "kubernetes.io/service-account-token":
            # Kubernetes makes this token once.
            self.files.secrets.setdefault(name, {"token": secrets.token_urlsafe(64)})
        else:
            self.files.secrets[name] = secret.get("stringData", {})

    def _apply_sets(self, sets: dict[str, StatefulSet], documents: list[Manifest]) -> None:
        for manifest in of_kind(documents, "StatefulSet"):
            name = manifest["metadata"]["name"]
            if name in sets:
                sets[name].manifest = manifest
            else:
                sets[name] = StatefulSet(manifest, self.machine)

    def _apply_services(self, services: list[Manifest]) -> None:
        wanted = {service["metadata"]["name"]: service["spec"] for service in services}
        for name in [name for name in self._listening if name not in wanted]:
            for address, port in self._listening.pop(name):
                self._forwarder.stop(address, port)
            self.network.drop_service_address(self._services.pop(name))
        for name, spec in wanted.items():
            if spec.get("clusterIP") != "None" and name not in self._services:
                self._services[name] = self.network.service_address()
                self._listening[name] = self._listen(name, spec)

    def _listen(self, name: str, spec: Manifest) -> list[tuple[str, int]]:
        listening = []
        for port in spec["ports"]:
            places = [(self._services[name], port["port"])]
            if "nodePort" in port:
                places.append((self.network.machine_outside, port["nodePort"]))
            for place in places:
                self._forwarder.listen(*place, lambda p=port: self._ready_places(spec, p))  # type: ignore[misc]
            listening += places
        return listening

    def _ready_places(self, spec: Manifest, port: Manifest) -> list[tuple[str, int]]:
        return [
            (pod.address, named["containerPort"])
            for pod in self._selected(spec)
            if pod.is_ready
            for named in pod.node["ports"]
            if named["name"] == port["targetPort"]
        ]

    def _selected(self, spec: Manifest) -> list[Pod]:
        return [pod for pod in self.controller.pods() if spec["selector"].items() <= pod.labels.items()]

    def _addresses(self, name: str) -> list[str] | None:
        """The answer of the DNS of Kubernetes; None if there is no such name."""
        if name == f"kubernetes.default.svc.{DOMAIN}":
            return [self.api_address]
        for service in of_kind(self._documents, "Service"):
            full = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc.{DOMAIN}"
            if name == full and full.split(".")[0] in self._services:
                return [self._services[full.split(".")[0]]]
            if name == full or name.endswith(f".{full}"):
                pods = [p for p in self._selected(service["spec"]) if name == full or f"{p.name}.{full}" == name]
                return [pod.address for pod in pods if pod.address] or None
        return None


def run(command: list[str], **env: str) -> subprocess.CompletedProcess[str]:
    """Runs a command of a client with this environment added."""
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=120)
