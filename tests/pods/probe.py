"""Probes of a container, sent as the kubelet does: from the machine, to the address of the pod."""

from __future__ import annotations

import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

Probe = dict[str, Any]


def succeeds(probe: Probe, address: str, ports: dict[str, int]) -> bool:
    """Sends a probe once."""
    get = probe["httpGet"]
    port = ports.get(str(get["port"])) or int(get["port"])
    url = f"{get.get('scheme', 'HTTP').lower()}://{address}:{port}{get['path']}"
    # Kubernetes verifies no certificate of a probe.
    context = ssl._create_unverified_context()
    try:
        timeout = probe.get("timeoutSeconds", 1)
        with urllib.request.urlopen(url, timeout=timeout, context=context) as answer:
            return bool(200 <= answer.status < 400)
    except (urllib.error.URLError, OSError):
        return False


class Prober:
    """Runs the probes of one container in a thread, until `stop`.

    Args:
        set_ready: Called when readiness changes.
        restart: Called when the container must be restarted: it did not start in time, or is not live.
    """

    def __init__(
        self,
        container: Probe,
        address: str,
        set_ready: Callable[[bool], None],
        restart: Callable[[str], None],
    ) -> None:
        self._container = container
        self._address = address
        self._ports = {p["name"]: p["containerPort"] for p in container.get("ports", []) if "name" in p}
        self._set_ready = set_ready
        self._restart = restart
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True)]
        self._threads[0].start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        if not self._until("startupProbe", succeeds_first=True):
            return
        live = threading.Thread(target=self._until, args=("livenessProbe",), daemon=True)
        live.start()
        self._watch_readiness()

    def _until(self, kind: str, succeeds_first: bool = False) -> bool:
        """Sends a probe until it succeeds once, or until it failed too often; then restarts the container."""
        probe = self._container.get(kind)
        if probe is None:
            return succeeds_first
        failed = 0
        self._stopped.wait(probe.get("initialDelaySeconds", 0))
        while not self._stopped.is_set():
            if succeeds(probe, self._address, self._ports):
                failed = 0
                if succeeds_first:
                    return True
            elif (failed := failed + 1) >= probe.get("failureThreshold", 3) and not self._stopped.is_set():
                self._restart(kind)
                return False
            self._stopped.wait(probe.get("periodSeconds", 10))
        return False

    def _watch_readiness(self) -> None:
        probe = self._container.get("readinessProbe")
        if probe is None:
            self._set_ready(True)
            return
        failed, ready = 0, False
        self._stopped.wait(probe.get("initialDelaySeconds", 0))
        while not self._stopped.is_set():
            failed = 0 if succeeds(probe, self._address, self._ports) else failed + 1
            now = ready if 0 < failed < probe.get("failureThreshold", 3) else failed == 0
            if now != ready and not self._stopped.is_set():
                ready = now
                self._set_ready(ready)
            self._stopped.wait(probe.get("periodSeconds", 10))
