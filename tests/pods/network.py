"""The network of the pods: a bridge of this machine, a namespace for each pod, and one for clients outside.

Pods are at 10.N.0.0/24, Services at 10.N.1.0/24, and both on the bridge. Clients outside have a link of their own to
this machine (10.N+1.0.0/24) and no route to the bridge, as on a machine beside a Kubernetes cluster.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
from pathlib import Path

NETWORKS = range(100, 240, 2)
PODS, SERVICES = 0, 1
FIRST_ADDRESS = 2


def ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Network:
    """Everything is removed by `close`."""

    def __init__(self) -> None:
        self.prefix = f"fbp{os.getpid() % 100_000}"
        self.bridge = f"{self.prefix}b"
        self._number = _unused_network()
        self._lock = threading.Lock()
        self._next = {PODS: FIRST_ADDRESS, SERVICES: FIRST_ADDRESS}
        self._devices: dict[str, str] = {}
        ip("link", "add", self.bridge, "type", "bridge")
        ip("addr", "add", f"{self.machine}/16", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")
        self.outside = f"{self.prefix}-outside"
        self.machine_outside = f"10.{self._number + 1}.0.1"
        self._space(self.outside, f"10.{self._number + 1}.0.2/24", f"{self.machine_outside}/24")

    @property
    def machine(self) -> str:
        """The address of this machine that pods reach; its DNS is there."""
        return f"10.{self._number}.0.1"

    def service_address(self) -> str:
        """A new address for a Service, on this machine."""
        address = self._take(SERVICES)
        ip("addr", "add", f"{address}/32", "dev", self.bridge)
        return address

    def drop_service_address(self, address: str) -> None:
        with contextlib.suppress(RuntimeError):
            ip("addr", "del", f"{address}/32", "dev", self.bridge)

    def add_pod(self, name: str) -> tuple[str, str]:
        """A namespace with a new address, as each start of a pod gets one: names of both."""
        address = self._take(PODS)
        space = f"{self.prefix}-{name}-{address.rsplit('.', 1)[1]}"
        self._space(space, f"{address}/16", None)
        return space, address

    def remove(self, space: str) -> None:
        # The kernel removes a namespace some time later, and a device with both its ends at once.
        for words in (("link", "del", self._devices.get(space, "")), ("netns", "del", space)):
            with contextlib.suppress(RuntimeError):
                ip(*words)

    def command(self, space: str, *command: str) -> list[str]:
        """A command that runs in a namespace, in the same process."""
        return ["nsenter", f"--net=/run/netns/{space}", *command]

    def command_with_names(self, space: str, resolver: Path, *command: str) -> list[str]:
        """As `command`, with the names that pods know."""
        script = f'mount --bind {resolver} /etc/resolv.conf && exec "$@"'
        return self.command(space, "unshare", "--mount", "sh", "-c", script, "sh", *command)

    def close(self) -> None:
        for space in self.spaces():
            self.remove(space)
        with contextlib.suppress(RuntimeError):
            ip("link", "del", self.bridge)

    def spaces(self) -> list[str]:
        """The namespaces of this network that are there."""
        names = (line.split()[0] for line in ip("netns", "list").splitlines() if line)
        return [name for name in names if name.startswith(f"{self.prefix}-")]

    def devices(self) -> list[str]:
        """The devices of this machine that belong to this network."""
        return re.findall(rf"(?m)^\d+: ({self.prefix}\w*)", ip("-o", "link"))

    def _take(self, kind: int) -> str:
        with self._lock:
            number = self._next[kind]
            if number > 250:
                raise RuntimeError("more than 250 pods were started")
            self._next[kind] += 1
        return f"10.{self._number}.{kind}.{number}"

    def _space(self, space: str, inside: str, here: str | None) -> None:
        """A namespace with a link to the bridge, or to this machine at the address `here`."""
        with self._lock:
            device = f"{self.prefix}v{len(self._devices)}"
            self._devices[space] = device
        ip("netns", "add", space)
        ip("link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", space)
        if here:
            ip("addr", "add", here, "dev", device)
        else:
            ip("link", "set", device, "master", self.bridge)
        ip("link", "set", device, "up")
        ip("-n", space, "addr", "add", inside, "dev", "eth0")
        for name in ("lo", "eth0"):
            ip("-n", space, "link", "set", name, "up")


def _unused_network() -> int:
    used = set(re.findall(r"inet 10\.(\d+)\.", ip("-4", "addr")))
    for number in NETWORKS:
        if not {str(number), str(number + 1)} & used:
            return number
    raise RuntimeError("all networks 10.100.0.0 to 10.239.0.0 are in use")
