"""StatefulSets: which pods there are, and in which order they are replaced."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from pods.manifest import Manifest, revision
from pods.pod import Ended, Machine, Pod

POLL_S = 0.1


class StatefulSet:
    """The pods of one manifest. `reconcile` takes one step, as the controller of Kubernetes does."""

    def __init__(self, manifest: Manifest, machine: Machine) -> None:
        self.manifest = manifest
        self.pods: dict[int, Pod] = {}
        self.is_deleted = False
        self.ended: list[Ended] = []
        self._machine = machine
        if manifest["spec"]["podManagementPolicy"] != "Parallel":
            raise RuntimeError(f"{self.name}: only podManagementPolicy Parallel is supported")

    @property
    def name(self) -> str:
        name: str = self.manifest["metadata"]["name"]
        return name

    @property
    def replicas(self) -> int:
        return int(self.manifest["spec"]["replicas"])

    @property
    def is_rolled_out(self) -> bool:
        """Whether exactly the pods of the manifest are there, updated and available."""
        return sorted(self.pods) == list(range(self.replicas)) and all(
            self._is_current(pod) and self._is_available(pod) for pod in self.pods.values()
        )

    def reconcile(self) -> None:
        for ordinal, pod in list(self.pods.items()):
            if pod.ended:
                self.ended.append(pod.ended)
                del self.pods[ordinal]
            else:
                pod.poll()
        if self.is_deleted:
            for pod in self.pods.values():
                pod.stop()
            return
        for ordinal in range(self.replicas):
            if ordinal not in self.pods:
                self.pods[ordinal] = self._new(ordinal)
                self.pods[ordinal].start()
        for ordinal, pod in self.pods.items():
            if ordinal >= self.replicas:
                pod.stop()
        self._update()

    def _update(self) -> None:
        """Replaces the last pod that is not of this revision, after all behind it are available."""
        for ordinal in sorted(self.pods, reverse=True):
            pod = self.pods[ordinal]
            if ordinal >= self.replicas:
                continue
            if not self._is_current(pod):
                pod.stop()
                return
            if not self._is_available(pod):
                return

    def _is_current(self, pod: Pod) -> bool:
        return pod.revision == revision(self.manifest["spec"]["template"])

    def _is_available(self, pod: Pod) -> bool:
        return pod.available(self.manifest["spec"].get("minReadySeconds", 0))

    def _new(self, ordinal: int) -> Pod:
        spec = self.manifest["spec"]
        claims = [claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", [])]
        namespace = self.manifest["metadata"]["namespace"]
        return Pod(f"{self.name}-{ordinal}", namespace, spec["template"], self._machine, claims)


class Controller:
    """Reconciles all StatefulSets in a thread, which starts all containers."""

    def __init__(self) -> None:
        self.sets: dict[str, StatefulSet] = {}
        # The first error of the thread, for its users.
        self.error: Exception | None = None
        self._pods: list[Pod] = []
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def pods(self) -> list[Pod]:
        """The pods after the last step."""
        return self._pods

    def change(self, act: Callable[[dict[str, StatefulSet]], None]) -> None:
        """Changes the sets between two steps."""
        with self._lock:
            act(self.sets)
            self._list()

    def _list(self) -> None:
        self._pods = [pod for stateful in self.sets.values() for pod in stateful.pods.values()]

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with self._lock:
                    for stateful in self.sets.values():
                        stateful.reconcile()
                    self._list()
            except Exception as error:  # noqa: BLE001
                self.error = self.error or error
                return
            time.sleep(POLL_S)
