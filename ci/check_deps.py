#!/usr/bin/env python3
"""Checks which crate may use which, as cargo sees it; part of `make check`.

Dependencies go one way (docs/architecture.md): core knows no other crate of ours, so no protocol; core,
the protocols and the archives do no I/O; v1 and S3 never meet, nor do gateway and target, nor store and
clouds; one TLS stack serves everything. Needs only the standard library.
"""

from __future__ import annotations

import json
import subprocess
import sys

PREFIX = "forebay-"

# Crate -> the crates of ours it may name, in any kind of dependency (tests too).
ALLOWED: dict[str, set[str]] = {
    "core": set(),
    "archive": {"core"},
    "v1": {"core"},
    "s3": {"core"},
    "routes": {"core", "v1", "s3"},
    "client": {"core", "archive", "v1"},
    "node": {"core", "client", "routes", "v1", "s3"},
    "gateway": {"core", "client", "node", "routes", "v1", "s3"},
    "store": {"core", "node"},
    "clouds": {"core", "node", "v1"},
    "target": {"core", "client", "node", "store", "clouds", "archive", "routes", "v1", "s3"},
    "cli": {"core", "client", "node", "gateway", "target", "v1", "s3"},
    "sdk": {"core", "client", "archive", "v1"},
    "tests": {"core", "client", "sim", "archive", "routes", "v1", "s3"},
    "sim": {"core"},
    "cache-replay": {"core", "target"},
    "load": set(),
    "scale": {"core"},
}

# These crates decide and never act: none of those may be reached from them, however deep.
WITHOUT_IO = ("core", "archive", "v1", "s3", "routes")
IO_CRATES = {
    "async-std", "axum", "fjall", "hyper", "hyper-util", "mio", "redb", "reqwest", "smol",
    "socket2", "tokio", "tokio-util", "tower",
}  # fmt: skip

# One TLS stack, and none that needs a C library of the system.
FORBIDDEN_ANYWHERE = {"native-tls", "openssl", "openssl-sys", "ring"}
ONE_VERSION = {"rustls", "hyper", "http", "tokio"}


def cargo(*arguments: str) -> str:
    done = subprocess.run(["cargo", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"check_deps: cargo {arguments[0]} failed:\n{done.stderr}")
    return done.stdout


def check_layers(metadata: dict) -> list[str]:
    """Our crates name only the crates of ours below them."""
    problems = []
    for package in metadata["packages"]:
        if package["id"] not in metadata["workspace_members"]:
            continue
        crate = package["name"].removeprefix(PREFIX)
        if crate not in ALLOWED:
            problems.append(
                f"{package['name']}: a crate this check does not know; give it a line in ALLOWED"
            )
            continue
        named = {d["name"] for d in package["dependencies"] if d["name"].startswith(PREFIX)}
        for name in sorted(named - {PREFIX + a for a in ALLOWED[crate]} - {package["name"]}):
            below = ", ".join(sorted(ALLOWED[crate])) or "none of ours"
            problems.append(f"{package['name']} uses {name}; it may use {below}")
    return problems


def shipped_by(*selection: str) -> dict[str, str]:
    """Each package linked into `selection`, as "name version", with the chain that brings it in.

    From `cargo tree`, because `cargo metadata` also lists optional packages that no feature turns on.
    """
    edges = "normal,no-proc-macro"
    listing = cargo("tree", *selection, "-e", edges, "--prefix", "depth", "--format", " {p}")
    chains: dict[str, str] = {}
    path: list[str] = []
    for line in filter(None, listing.splitlines()):
        depth, name, version = line.split()[:3]
        del path[int(depth) :]
        path.append(name)
        package = f"{name} {version.removeprefix('v')}"
        chains.setdefault(package, " <- ".join([package, *reversed(path[:-1])]))
    return chains


def check_outside_crates(
    without_io: dict[str, dict[str, str]], everything: dict[str, str]
) -> list[str]:
    """No I/O below the nodes, one version of what must be one, and no second TLS stack."""
    problems = [
        f"{crate} must do no I/O: {chain}"
        for crate, packages in without_io.items()
        for package, chain in packages.items()
        if package.split()[0] in IO_CRATES
    ]
    problems += [
        f"not wanted in the product: {chain}"
        for package, chain in everything.items()
        if package.split()[0] in FORBIDDEN_ANYWHERE
    ]
    for single in sorted(ONE_VERSION):
        chains = [chain for package, chain in everything.items() if package.split()[0] == single]
        if len(chains) > 1:
            problems.append(f"more than one version of {single}: {'; '.join(chains)}")
    return problems


def main() -> int:
    problems = check_layers(json.loads(cargo("metadata", "--format-version", "1", "--no-deps")))
    without_io = {crate: shipped_by("-p", PREFIX + crate) for crate in WITHOUT_IO}
    problems += check_outside_crates(without_io, shipped_by("--workspace"))
    for problem in problems:
        print(f"check_deps: {problem}", file=sys.stderr)
    if not problems:
        print("check_deps: ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
