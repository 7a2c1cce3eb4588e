"""One pod: its network, its volumes, its containers in order, their probes, and the way it ends."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pods.container import Container, Mount, Spec, rights
from pods.image import Image
from pods.manifest import Files, Manifest, environment, revision, words, write_volume
from pods.network import Network
from pods.probe import Prober

RESTART_DELAY_S = 1.0
POLL_S = 0.05


@dataclass(frozen=True)
class Machine:
    """Shared by all pods. `image` finds the image of a container by its name."""

    network: Network
    files: Files
    folder: Path
    image: Callable[[str], Image]
    env: dict[str, str]
    resolver: Path


@dataclass
class Ended:
    """How a pod was stopped.

    Attributes:
        hook: Exit code of its preStop command; None if it has none.
        exit_code: Of its first process.
        was_killed: Whether its grace period ended before it did.
        seconds: From its deletion to the end of its process.
    """

    pod: str
    hook: int | None
    exit_code: int | None
    was_killed: bool
    seconds: float


@dataclass
class Pod:
    """A pod from a template, with a name of its own. `start` must run in a thread that outlives it."""

    name: str
    namespace: str
    template: Manifest
    machine: Machine
    claims: list[str] = field(default_factory=list)
    is_ready: bool = False
    ready_since: float = 0.0
    is_ending: bool = False
    ended: Ended | None = None
    restarts: list[str] = field(default_factory=list)
    address: str = ""

    def __post_init__(self) -> None:
        self.revision = revision(self.template)
        self.folder = self.machine.folder / "pods" / self.name
        self.log = self.machine.folder / f"{self.name}.log"
        self._container: Container | None = None
        self._prober: Prober | None = None
        self._space = ""
        self._restart_at: float | None = None
        self._lock = threading.Lock()

    @property
    def labels(self) -> dict[str, str]:
        given: dict[str, str] = self.template["metadata"].get("labels", {})
        return {**given, "statefulset.kubernetes.io/pod-name": self.name}

    @property
    def spec(self) -> Manifest:
        spec: Manifest = self.template["spec"]
        return spec

    @property
    def node(self) -> Manifest:
        """The first container; sidecars are not run."""
        container: Manifest = self.spec["containers"][0]
        return container

    @property
    def container(self) -> Container:
        if self._container is None:
            raise RuntimeError(f"pod {self.name} has no container")
        return self._container

    def available(self, seconds: float) -> bool:
        """Whether it has been ready for so long."""
        return self.is_ready and not self.is_ending and time.monotonic() - self.ready_since >= seconds

    def start(self) -> None:
        if len(self.spec["containers"]) > 1:
            raise RuntimeError(f"pod {self.name} has sidecars, which this runner does not run")
        self._space, self.address = self.machine.network.add_pod(self.name)
        self._make_volumes()
        for container in self.spec.get("initContainers", []):
            before = self._run(container)
            while before.exit_code() is None:
                time.sleep(POLL_S)
            if before.exit_code() != 0:
                raise RuntimeError(f"{self.name}: {container['name']} failed; its log is {self.log}")
        self._start_node()

    def poll(self) -> None:
        """Restarts the container if it ended, or if a probe wants it."""
        if self.is_ending or self._container is None:
            return
        if self._restart_at is None and self.container.exit_code() is not None:
            self._will_restart(f"exit code {self.container.exit_code()}")
        if self._restart_at is not None and time.monotonic() >= self._restart_at:
            self.container.kill()
            self._start_node()

    def stop(self) -> None:
        """Ends it in a thread: the hook, SIGTERM, and SIGKILL after the grace period."""
        with self._lock:
            if self.is_ending:
                return
            self.is_ending = True
        self._set_ready(False)
        if self._prober:
            self._prober.stop()
        threading.Thread(target=self._end, daemon=True).start()

    def _end(self) -> None:
        begin = time.monotonic()
        end = begin + self.spec.get("terminationGracePeriodSeconds", 30)
        hook = self._run_hook(end)
        self.container.signal(signal.SIGTERM)
        killed = not self.container.wait(max(end - time.monotonic(), 0.1))
        seconds = time.monotonic() - begin
        code = self.container.exit_code()
        self.container.kill()
        self._remove()
        self.ended = Ended(self.name, hook, code, killed, seconds)

    def kill(self) -> None:
        """Ends it at once."""
        self.is_ending = True
        if self._prober:
            self._prober.stop()
        if self._container:
            self._container.kill()
        self._remove()

    def _run_hook(self, end: float) -> int | None:
        hook = self.node.get("lifecycle", {}).get("preStop", {})
        if "sleep" in hook:
            time.sleep(min(hook["sleep"]["seconds"], end - time.monotonic()))
        if "exec" not in hook or self.container.exit_code() is not None:
            return None
        running = self.container.start(hook["exec"]["command"])
        try:
            return running.wait(end - time.monotonic())
        except subprocess.TimeoutExpired:
            running.kill()
            return running.wait()

    def _start_node(self) -> None:
        self._restart_at = None
        self._set_ready(False)
        if self._prober:
            self._prober.stop()
        self._container = self._run(self.node)
        self._prober = Prober(self.node, self.address, self._set_ready, self._will_restart)

    def _will_restart(self, why: str) -> None:
        if not self.is_ending:
            self.restarts.append(why)
            self._restart_at = time.monotonic() + RESTART_DELAY_S

    def _set_ready(self, ready: bool) -> None:
        self.is_ready = ready and not self.is_ending
        self.ready_since = time.monotonic()

    def _make_volumes(self) -> None:
        group = self.spec.get("securityContext", {}).get("fsGroup", 0)
        for volume in self.spec.get("volumes", []):
            write_volume(volume, self.name, self.machine.files, self.folder / volume["name"], group)
        for claim in self.claims:
            # A claim stays when its pod goes.
            folder = self._claim(claim)
            if not folder.exists():
                write_volume({"emptyDir": {}}, self.name, self.machine.files, folder, group)

    def _claim(self, claim: str) -> Path:
        return self.machine.folder / "claims" / f"{claim}-{self.name}"

    def _run(self, container: Manifest) -> Container:
        image = self.machine.image(container["image"])
        pod = {"metadata": {"name": self.name, "namespace": self.namespace, "uid": self.name}}
        env = {**self.machine.env, **image.env, "HOSTNAME": self.name}
        env = environment(container, pod, self.machine.files, env)
        scratch = self.folder / f"root-{container['name']}-{len(self.restarts)}"
        spec = Spec(
            argv=words(container, image, env),
            env=env,
            image=str(image.root),
            scratch=str(scratch),
            folder=container.get("workingDir", image.folder),
            mounts=self._mounts(container),
            **rights(self.spec, container, image),
        )
        enter = self.machine.network.command(self._space)
        return Container(spec, enter, self.log)

    def _mounts(self, container: Manifest) -> list[Mount]:
        mounts = [Mount(str(self.machine.resolver), "/etc/resolv.conf", True)]
        hosts = self.folder / "hosts"
        hosts.write_text(f"127.0.0.1\tlocalhost\n{self.address}\t{self.name}\n")
        mounts.append(Mount(str(hosts), "/etc/hosts", True))
        for mount in container.get("volumeMounts", []):
            name = mount["name"]
            source = self._claim(name) if name in self.claims else self.folder / name
            mounts.append(Mount(str(source), mount["mountPath"], bool(mount.get("readOnly"))))
        return mounts

    def _remove(self) -> None:
        self.machine.network.remove(self._space)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.folder)
