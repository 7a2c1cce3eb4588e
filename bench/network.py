"""Reads and writes across links of limited rate: throughput and CPU time with 1 to 4 targets.

    python bench/network.py --bin build/dist/forebay [--rate 2000] [--delay 0.0005]

As root. Each target, the gateway and the client have a network namespace (namespaces.py). The link of
each target has the rate, that of the client four times as much, so that more targets can send more; --delay delays it. Our
own client reads and writes objects of 4 MiB, by batches. Cores per 100 GbE says what a machine needs
that serves at the rate of such a link, if CPU time per byte stays as measured:

    cores per 100 GbE = CPU seconds / bytes * 12.5 * 10^9 bytes/s

The CPU time is that of user space and of system calls of the processes. The machine's time for frames,
which a network card and its interrupts take, is in it only where a system call does the work.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import measurement
import peers
from feeding.reader import cpu_s
from measurement import MIB, Row, not_run, shown
from namespaces import MBIT, Network, NoNetwork

PORT = 7400
GATEWAY = "gateway1"
BUCKET = "network"
OBJECT_BYTES = 4 * MIB
BATCH = 16
FORMULA = "CPU seconds / bytes * 12.5e9 bytes/s"
BYTES_A_SECOND_100GBE = 12.5e9
TARGETS, QUICK_TARGETS = (1, 2, 3, 4), (1, 2, 4)
CLIENT_LINKS = 4
"""The client's link has the rate of so many links of targets."""


def target_ids(count: int) -> list[str]:
    """Node ids of targets, which are the names of their namespaces too."""
    return [f"target{number:02}" for number in range(1, count + 1)]


def cores_per_100gbe(seconds: float, size: int) -> float:
    """Cores that are busy at 100 Gbit/s with so much CPU time per byte."""
    return seconds / size * BYTES_A_SECOND_100GBE


@contextlib.contextmanager
def cluster(network: Network, binary: str, folder: Path, targets: int) -> Iterator[dict[str, Any]]:
    """A gateway and targets, each in its namespace: `endpoint` and `pids`."""
    secret = folder / "secret"
    secret.write_text("of this network alone\n")
    secret.chmod(0o600)
    gateway = f"http://{network.address(GATEWAY)}:{PORT}"
    nodes = [GATEWAY, *target_ids(targets)]
    with contextlib.ExitStack() as stack:
        children = []
        for node in nodes:
            home = folder / node
            home.mkdir()
            config = home / "forebay.toml"
            config.write_text(settings(node, network.address(node), gateway, secret, home))
            role = "gateway" if node == GATEWAY else "target"
            command = network.within(node, binary, role, "--config", str(config))
            log = stack.enter_context((home / "log").open("wb"))
            child = subprocess.Popen(command, stdout=log, stderr=log)
            stack.callback(child.wait)
            stack.callback(child.terminate)
            children.append(child)
        for node, child in zip(nodes, children, strict=True):
            ready = f"http://{network.address(node)}:{PORT}/readyz"
            probe = network.within("client", sys.executable, __file__, "--answers", ready)
            peers.wait(lambda probe=probe: subprocess.run(probe).returncode == 0, node, child)
        yield {"endpoint": gateway, "pids": [child.pid for child in children]}


def settings(node: str, address: str, gateway: str, secret: Path, home: Path) -> str:
    """The configuration file of a node."""
    lines = [
        f'[cluster]\ngateways = ["{gateway}"]\nsecret_file = "{secret}"',
        f'[node]\nid = "{node}"\ndir = "{home}/state"',
        f'[listen]\nhttp = "{address}:{PORT}"\ninsecure = true',
    ]
    if node != GATEWAY:
        (home / "disk").mkdir()
        lines.append(f'[[disk]]\npath = "{home}/disk"\nsize = "3GiB"')
    return "\n".join(lines) + "\n"


def client(endpoint: str, what: str, objects: int, seconds: float) -> dict[str, float]:
    """In the client's process: whole rounds of reads or writes, for at least so many seconds."""
    import forebay

    bucket = forebay.Client(endpoint).bucket(BUCKET)
    names = [f"o{number:05d}" for number in range(objects)]
    content = random.Random(1).randbytes(OBJECT_BYTES)
    moved = 0
    began, before = time.perf_counter(), cpu_s(os.getpid())
    while time.perf_counter() - began < seconds:
        if what == "write":
            moved += bucket.put_many(((name, content) for name in names), BATCH) * OBJECT_BYTES
            continue
        for at in range(0, objects, BATCH):
            contents = bucket.get_many(names[at : at + BATCH])
            moved += sum(map(len, contents))
            if any(bytes(one[:64]) != content[:64] for one in contents):
                raise SystemExit("error: another object came back")
    took = time.perf_counter() - began
    return {"bytes": moved, "seconds": took, "cpu_s": cpu_s(os.getpid()) - before}


def measured(
    options: argparse.Namespace, network: Network, targets: int, folder: Path
) -> Iterator[Row]:
    """Writes, then reads, with so many targets."""
    objects, seconds = (32, 2.0) if options.quick else (128, 10.0)
    with cluster(network, options.bin, folder, targets) as found:
        program = [sys.executable, __file__, "--client", found["endpoint"], "--objects", str(objects)]
        make = [*program, "--what", "create", "--seconds", "0"]
        subprocess.run(network.within("client", *make), check=True, stdout=subprocess.DEVNULL)
        for what in ("write", "read"):
            command = [*program, "--what", what, "--seconds", str(seconds)]
            before = sum(map(cpu_s, found["pids"]))
            done = subprocess.run(
                network.within("client", *command), check=True, stdout=subprocess.PIPE, text=True
            )
            spent = sum(map(cpu_s, found["pids"])) - before
            result = json.loads(done.stdout)
            size = result["bytes"]
            rate = size / result["seconds"]
            yield {
                "row": f"network {what}, {targets} targets",
                "who": "Forebay",
                "targets": targets,
                "bytes_per_s": rate,
                "of_links": rate * 8 / (options.rate * MBIT * targets),
                "server_cpu_s": spent,
                "client_cpu_s": result["cpu_s"],
                "bytes": size,
                "server_cores_per_100gbe": cores_per_100gbe(spent, size),
                "client_cores_per_100gbe": cores_per_100gbe(result["cpu_s"], size),
                "formula": FORMULA,
                "link_mbit": options.rate,
                "delay_s": options.delay,
                "delayed_by": network.delayed_by,
            }


def rows(options: argparse.Namespace) -> list[Row]:
    """All rows; a row per target count and direction."""
    found: list[Row] = []
    for targets in QUICK_TARGETS if options.quick else TARGETS:
        rates = dict.fromkeys(target_ids(targets), options.rate)
        rates |= {GATEWAY: options.rate, "client": CLIENT_LINKS * options.rate}
        try:
            with tempfile.TemporaryDirectory(dir=options.out) as name, \
                    Network(rates, "client", options.delay) as network:  # fmt: skip
                found += map(shown, measured(options, network, targets, Path(name).absolute()))
        except NoNetwork as error:
            return [*found, not_run("network", "Forebay", str(error))]
    first = {row["row"].split(",")[0]: row for row in found if row["targets"] == 1}
    for row in found:
        row["times_one_target"] = row["bytes_per_s"] / first[row["row"].split(",")[0]]["bytes_per_s"]
    print(f"cores per 100 GbE = {FORMULA}")
    return found


def in_namespace() -> bool:
    """The part of this program that runs in the client's namespace; whether this is it."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--answers")
    parser.add_argument("--client")
    parser.add_argument("--what")
    parser.add_argument("--objects", type=int)
    parser.add_argument("--seconds", type=float)
    options, _ = parser.parse_known_args()
    if options.answers:
        sys.exit(0 if peers.answers(options.answers) else 1)
    if not options.client:
        return False
    if options.what == "create":
        import forebay

        forebay.Client(options.client).bucket(BUCKET).create()
    else:
        done = client(options.client, options.what, options.objects, options.seconds)
        print(json.dumps(done))
    return True


def main() -> None:
    if in_namespace():
        return
    parser = measurement.parser(__doc__)
    parser.add_argument("--rate", type=int, default=0, help="Mbit/s of a target's link")
    parser.add_argument("--delay", type=float, default=0.0, help="s of each direction of the client's link")
    options = parser.parse_args()
    options.rate = options.rate or (400 if options.quick else 2000)
    measurement.run(options, rows)


if __name__ == "__main__":
    main()
