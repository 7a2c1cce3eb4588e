"""A soak: a mixed load over a cluster for a long time, with clients that are killed and come back.

`make soak` runs it for two hours; `test_soak.py` runs it for a minute. Each client puts, gets, reads in
batches, lists and deletes objects under a prefix of its own and compares every byte and every list.
Meanwhile descriptors, threads and memory of all nodes are sampled. Their bounds come from a warm-up, the
first third of the run but at most ten minutes:

    descriptors <= 1.10 * the most of the warm-up + 16
    threads     <= 1.10 * the most of the warm-up + 4
    memory      <= 1.15 * the most of the warm-up + 48 MiB

The set of names is fixed and their sizes are bounded, so nothing that the clients ask for grows.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from forebay_cluster import Cluster
from forebay_soak_client import Known

__all__ = ["BOUNDS", "Finding", "Sample", "Soak", "exceeded", "sample_of"]

MIB = 1 << 20
CLIENTS = 4
SAMPLE_S = 0.5
MOST_WARM_UP_S = 600.0
STOP_DEADLINE_S = 60.0
CLIENT = Path(__file__).with_name("forebay_soak_client.py")


@dataclass(frozen=True)
class Sample:
    """The descriptors, threads and memory of a process at one time."""

    descriptors: int
    threads: int
    memory: int


BOUNDS = {"descriptors": (1.10, 16), "threads": (1.10, 4), "memory": (1.15, 48 * MIB)}
"""Factor and addend over the most of the warm-up."""


@dataclass(frozen=True)
class Finding:
    """A value beyond its bound."""

    process: str
    what: str
    value: int
    bound: int

    def __str__(self) -> str:
        return f"{self.process}: {self.value:,} {self.what}; the bound is {self.bound:,}"


def sample_of(pid: int) -> Sample:
    """Of a running process."""
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
    )
    return Sample(
        len(os.listdir(f"/proc/{pid}/fd")),
        int(status["Threads"]),
        int(status["VmRSS"].split()[0]) << 10,
    )


def exceeded(process: str, warm_up: Sequence[Sample], after: Sequence[Sample]) -> list[Finding]:
    """The most of each value after the warm-up that is beyond its bound."""
    found = []
    for what, (factor, more) in BOUNDS.items():
        bound = int(max(getattr(sample, what) for sample in warm_up) * factor) + more
        value = max(getattr(sample, what) for sample in after)
        if value > bound:
            found.append(Finding(process, what, value, bound))
    return found


@dataclass
class Client:
    """A client's process, and what its objects may be. It outlives its processes.

    The process writes a line before and after each change. After a kill between both, an object may
    have its old or its new content.
    """

    endpoint: str
    bucket: str
    number: int
    known: dict[str, Known] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    starts: int = 0
    process: subprocess.Popen[str] | None = None
    reader: threading.Thread | None = None

    def start(self) -> None:
        """Starts a process that knows what is there."""
        prefix, seed = f"client{self.number}/", self.number * 1_000_000 + self.starts
        self.starts += 1
        command = [sys.executable, str(CLIENT), self.endpoint, self.bucket, prefix, str(seed)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(self.known) + "\n")
        self.process.stdin.flush()
        self.reader = threading.Thread(target=self._read, args=(self.process, self.process.stdout))
        self.reader.start()

    def stop(self, is_killed: bool = False) -> None:
        """Ends the process, killed or after its present operation, and takes in what it did."""
        assert self.process is not None and self.reader is not None
        assert self.process.stdin is not None
        if is_killed:
            self.process.kill()
        self.process.stdin.close()
        try:
            self.process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.failures.append(f"client {self.number} did not end within {STOP_DEADLINE_S:.0f} s")
            self.process.kill()
            self.process.wait()
        self.reader.join()
        assert self.process.stderr is not None
        errors = self.process.stderr.read().strip()
        if self.process.returncode not in (0, -signal.SIGKILL if is_killed else 0):
            self.failures.append(f"client {self.number}: {errors or self.process.returncode}")

    def _read(self, process: subprocess.Popen[str], lines: IO[str]) -> None:
        for line in lines:
            if not line.endswith("\n"):
                continue  # cut by a kill: the operation before it stays open
            word, name, content = json.loads(line)
            if word == "begin":
                self.known[name] = [*self.known.get(name, [None]), content]
            elif word == "end":
                self.known[name] = [content]
            else:
                self.counts[word] = self.counts.get(word, 0) + 1


class Soak:
    """A cluster under the load of its clients."""

    def __init__(self, cluster: Cluster, buckets: Sequence[str]) -> None:
        self.cluster = cluster
        self.clients = [
            Client(cluster.endpoint, buckets[number % len(buckets)], number)
            for number in range(CLIENTS)
        ]
        nodes = cluster.info["gateways"] + cluster.info["targets"]
        self.pids = {node["id"]: node["pid"] for node in nodes}
        self.samples: dict[str, list[tuple[float, Sample]]] = {name: [] for name in self.pids}

    def run(self, seconds: float) -> list[str]:
        """Loads the cluster; what was wrong, as lines. A client is restarted every twentieth of it."""
        chosen = random.Random(1)
        began = time.monotonic()
        restart_s = min(30.0, seconds / 20)
        for client in self.clients:
            client.start()
        next_restart = began + restart_s
        while (now := time.monotonic()) < began + seconds:
            for name, pid in self.pids.items():
                self.samples[name].append((now - began, sample_of(pid)))
            for client in self.clients:
                if client.process is not None and client.process.poll() is not None:
                    return self.wrong(seconds)
            if now >= next_restart:
                next_restart += restart_s
                client = chosen.choice(self.clients)
                client.stop(is_killed=chosen.random() < 0.5)
                client.start()
            time.sleep(SAMPLE_S)
        return self.wrong(seconds)

    def wrong(self, seconds: float) -> list[str]:
        """Stops the clients; all of their failures, and the values beyond their bounds."""
        for client in self.clients:
            client.stop()
        for client in self.clients:
            # A new process compares all of the client's objects, and ends at once.
            client.start()
            client.stop()
        lines = [failure for client in self.clients for failure in client.failures]
        return lines + [str(finding) for finding in self.findings(seconds)]

    def findings(self, seconds: float) -> list[Finding]:
        """Values after the warm-up that are beyond their bounds."""
        warm_up_s = min(seconds / 3, MOST_WARM_UP_S)
        found = []
        for name, samples in self.samples.items():
            warm_up = [sample for at, sample in samples if at < warm_up_s]
            after = [sample for at, sample in samples if at >= warm_up_s]
            if warm_up and after:
                found += exceeded(name, warm_up, after)
        return found

    def counts(self) -> dict[str, int]:
        """Operations by kind, and starts of clients."""
        total = {"starts": sum(client.starts for client in self.clients)}
        for client in self.clients:
            for word, count in client.counts.items():
                total[word] = total.get(word, 0) + count
        return total

    def most(self) -> dict[str, dict[str, Any]]:
        """The most of each value of each node, for people."""
        return {
            name: {what: max(getattr(sample, what) for _, sample in samples) for what in BOUNDS}
            for name, samples in self.samples.items()
            if samples
        }


def main() -> None:
    """`make soak`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=7200)
    parser.add_argument("--json", type=Path, default=Path("build/soak.json"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster.start(Path(folder), options=["--size", "2GiB"])
        try:
            soak = Soak(cluster, make_buckets(cluster.endpoint))
            wrong = soak.run(options.seconds)
        finally:
            cluster.stop()
    result = {"seconds": options.seconds, "counts": soak.counts(), "most": soak.most(), "wrong": wrong}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    sys.exit(1 if wrong else 0)


def make_buckets(endpoint: str) -> list[str]:
    """A bucket of each class; their names."""
    import urllib.request

    import forebay

    client = forebay.Client(endpoint)
    for name in ("soak-owned", "soak-cache"):
        client.bucket(name).create()
        body = json.dumps({"action": "set-bprops", "value": {"class": name.partition("-")[2]}})
        request = urllib.request.Request(
            f"{endpoint}/v1/buckets/{name}", body.encode(), {"Content-Type": "application/json"},
            method="PATCH",
        )  # fmt: skip
        urllib.request.urlopen(request, timeout=30).close()
    return ["soak-owned", "soak-cache"]


if __name__ == "__main__":
    main()
