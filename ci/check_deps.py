#!/usr/bin/env python3
"""Checks which crate may use which, as cargo sees it, and the layers within core; part of `make check`.

Dependencies go one way (docs/architecture.md): core knows no other crate of ours and no I/O, its
domain knows no protocol, gateway and target never meet, nor do store and clouds, one TLS stack
serves everything. Needs only the standard library.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

PREFIX = "forebay-"
CORE = Path(__file__).resolve().parent.parent / "core" / "src"

# Crate -> the crates of ours it may name, in any kind of dependency (tests too).
ALLOWED: dict[str, set[str]] = {
    "core": set(),
    "client": {"core"},
    "node": {"core", "client"},
    "gateway": {"core", "client", "node"},
    "store": {"core", "node"},
    "clouds": {"core", "node"},
    "target": {"core", "client", "node", "store", "clouds"},
    "cli": {"core", "client", "node", "gateway", "target"},
    "sdk": {"core", "client"},
    "tests": {"core", "client", "sim"},
    "sim": {"core"},
    "cache-replay": {"target"},
    "load": set(),
    "scale": {"core"},
}

# core decides and never acts: none of these may be reached from it, however deep.
NO_IO_IN_CORE = {
    "async-std", "axum", "fjall", "hyper", "hyper-util", "mio", "redb", "reqwest", "smol",
    "socket2", "tokio", "tokio-util", "tower",
}  # fmt: skip

# Module of core -> the modules of its upper layers that it may name, in code, tests and comments. All
# other modules are the domain, which names none: the state and the log must not depend on a protocol.
MAY_NAME = {"v1": {"v1"}, "s3": {"s3"}, "routes": {"routes", "v1", "s3"}}
UPPER_NAMED = re.compile(r"\b(?:crate|super|forebay_core)::(?:\{[^;]*?\b)?(v1|s3|routes)\b")

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


def check_core_modules(sources: dict[str, str]) -> list[str]:
    """The domain of core names no protocol, and v1 and S3 do not name each other.

    `sources` maps paths below core/src to their text.
    """
    problems = []
    for path, text in sorted(sources.items()):
        module = path.split("/")[0].removesuffix(".rs")
        for found in UPPER_NAMED.finditer(text):
            if found[1] not in MAY_NAME.get(module, set()):
                line = text.count("\n", 0, found.start()) + 1
                problems.append(
                    f"core/src/{path}:{line}: {module} must not name {found[1]}, which is no layer below it"
                )
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


def check_outside_crates(core: dict[str, str], everything: dict[str, str]) -> list[str]:
    """core stays pure, one version of what must be one, and no second TLS stack."""
    problems = [
        f"core must do no I/O: {chain}"
        for package, chain in core.items()
        if package.split()[0] in NO_IO_IN_CORE
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
    problems += check_core_modules(
        {str(path.relative_to(CORE)): path.read_text(encoding="utf-8") for path in CORE.rglob("*.rs")}
    )
    problems += check_outside_crates(shipped_by("-p", PREFIX + "core"), shipped_by("--workspace"))
    for problem in problems:
        print(f"check_deps: {problem}", file=sys.stderr)
    if not problems:
        print("check_deps: ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
