"""A network on one machine: nodes in network namespaces, each with a link of limited rate and delay.

It needs root, `ip`, `tc` (iproute2) and `nsenter`. A link's rate is that of a token bucket (tc tbf) at
both of its ends. One node's link may be delayed: by netem, or, if the kernel has none, by a process that
carries its frames (tests/src/lab/wire.py), which takes CPU time of its own.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

BURST_BYTES = 256 << 10
"""Of a token bucket: more than one segment of TCP before it is cut into frames (64 KiB)."""
QUEUE_S = 0.02
"""For how long a frame may wait in a bucket before it is dropped."""
MBIT = 1_000_000
TICKS_A_SECOND = 100


WIRE = Path(__file__).parent.parent / "tests/src/lab/wire.py"


class NoNetwork(RuntimeError):
    """This machine cannot have such a network."""


def command(*words: str) -> str:
    """Runs a command; its output."""
    try:
        done = subprocess.run(words, capture_output=True, text=True)
    except FileNotFoundError:
        raise NoNetwork(f"{words[0]} is not installed") from None
    if done.returncode:
        raise NoNetwork(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Network:
    """Namespaces on one bridge, which has a namespace of its own; all go with the context.

    Attributes:
        delayed_by: `netem` or `wire.py`; empty without a delay.
    """

    def __init__(self, rates_mbit: dict[str, int], delayed: str = "", delay_s: float = 0.0) -> None:
        """Names of nodes, with the rate of the link of each, the same in both directions.

        The link of the node `delayed` has this delay in each direction.
        """
        if os.geteuid() != 0:
            raise NoNetwork("network namespaces need root")
        self.rates_mbit, self.nodes = rates_mbit, list(rates_mbit)
        self.delayed, self.delay_s, self.delayed_by = delayed if delay_s else "", delay_s, ""
        self._wire: subprocess.Popen[str] | None = None
        pid = os.getpid()
        self._prefix, self._subnet = f"fbn{pid}", f"10.{100 + pid % 97}.{pid // 97 % 250}"

    def __enter__(self) -> Self:
        try:
            self._make()
        except NoNetwork:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def address(self, node: str) -> str:
        """The IPv4 address of a node."""
        return f"{self._subnet}.{self.nodes.index(node) + 1}"

    def within(self, node: str, *words: str) -> list[str]:
        """A command that runs in a node's namespace, in the same process."""
        return ["nsenter", f"--net=/run/netns/{self._space(node)}", *words]

    def sent_bytes(self, node: str) -> int:
        """Bytes that a node's link carried to the network so far, headers counted."""
        path = "/sys/class/net/eth0/statistics/tx_bytes"
        # /sys shows the devices of the namespace in which it was mounted.
        words = ("ip", "netns", "exec", self._space(node), "cat", path)
        return int(command(*words))

    def _space(self, node: str) -> str:
        return f"{self._prefix}{node}"

    def _make(self) -> None:
        switch = self._space("switch")
        command("ip", "netns", "add", switch)
        command("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
        command("ip", "-n", switch, "link", "set", "br0", "up")
        for number, node in enumerate(self.nodes):
            space, port = self._space(node), f"p{number}"
            command("ip", "netns", "add", space)
            made = ("link", "add", port, "netns", switch, "type", "veth", "peer", "eth0")
            command("ip", *made, "netns", space)
            command("ip", "-n", space, "addr", "add", f"{self.address(node)}/24", "dev", "eth0")
            for place, device in ((space, "lo"), (space, "eth0"), (switch, port)):
                command("ip", "-n", place, "link", "set", device, "up")
            command("ip", "-n", switch, "link", "set", port, "master", "br0")
            for place, device in ((space, "eth0"), (switch, port)):
                self._limit(place, device, self.rates_mbit[node])
            if node == self.delayed:
                self._delay(space, port)

    def _limit(self, space: str, device: str, rate_mbit: int) -> None:
        """Gives one direction of a link its rate and delay."""
        # The kernel fills a bucket up once in a timer tick; a smaller one would never reach the rate.
        burst = str(max(BURST_BYTES, rate_mbit * MBIT // 8 // TICKS_A_SECOND))
        latency = ("latency", f"{QUEUE_S * 1000:g}ms")
        bucket = ("tbf", "rate", f"{rate_mbit}mbit", "burst", burst, *latency)
        qdisc = ("tc", "-n", space, "qdisc", "add", "dev", device)
        command(*qdisc, "root", "handle", "1:", *bucket)

    def _delay(self, space: str, port: str) -> None:
        """Delays the link of a node; `port` is its other end, on the bridge."""
        switch = self._space("switch")
        netem = ("netem", "delay", f"{self.delay_s * 1e6:.0f}us", "limit", "100000")
        try:
            for place, device in ((space, "eth0"), (switch, port)):
                qdisc = ("tc", "-n", place, "qdisc", "add", "dev", device)
                command(*qdisc, "parent", "1:1", "handle", "10:", *netem)
            self.delayed_by = "netem"
        except NoNetwork as error:
            if "unknown" not in str(error).lower():
                raise
            self._carry(switch, port)
            self.delayed_by = WIRE.name

    def _carry(self, switch: str, port: str) -> None:
        """Takes a port off the bridge; a process carries its frames there and back."""
        command("ip", "-n", switch, "link", "add", "near", "type", "veth", "peer", "far")
        for device in ("near", "far"):
            command("ip", "-n", switch, "link", "set", device, "up")
        command("ip", "-n", switch, "link", "set", "far", "master", "br0")
        command("ip", "-n", switch, "link", "set", port, "nomaster")
        words = [sys.executable, str(WIRE), port, "near", "0", f"{self.delay_s * 1000:g}", "0"]
        self._wire = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{switch}", *words], stdout=subprocess.PIPE, text=True
        )
        assert self._wire.stdout is not None
        if self._wire.stdout.readline() != "ready\n":
            raise NoNetwork(f"{WIRE} does not start")

    def _remove(self) -> None:
        if self._wire is not None:
            self._wire.terminate()
            self._wire.wait()
        for node in [*self.nodes, "switch"]:
            with contextlib.suppress(NoNetwork):
                command("ip", "netns", "del", self._space(node))
