#!/usr/bin/env python3
"""The Rust crates that are linked into what ships, as cargo resolves them for one processor.

`cargo tree` says which crates these are, with only the features that the packages of this list turn
on; `cargo metadata` says where their sources are. Needs only cargo and the standard library.
"""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# The program and the native core of the Python package.
SHIPPED_PACKAGES = ("forebay-cli", "forebay-sdk")
DEFAULT_TARGET = "x86_64-unknown-linux-gnu"
# Code that runs while compiling is not linked in: build scripts, procedural macros, tests.
EDGES = "normal,no-proc-macro"
_LINE = re.compile(r"^(?P<depth>\d+)\|(?P<name>\S+) v(?P<version>\S+)")


@dataclass(frozen=True, order=True)
class CrateId:
    """Name and version of a crate; no two crates that ship agree in both."""

    name: str
    version: str


@dataclass(frozen=True)
class Crate:
    """A crate that is linked in.

    Attributes:
        license: Its SPDX expression; empty if it states none.
        folder: Its unpacked sources.
        checksum: SHA-256 of its package in the registry; None for crates of this repository.
        repository: The URL of its sources; None if it states none.
    """

    id: CrateId
    license: str
    folder: Path
    checksum: str | None
    repository: str | None
    license_file: str | None = None

    @property
    def is_own(self) -> bool:
        """Whether the crate is part of this repository."""
        return self.checksum is None


@dataclass
class Graph:
    """The crates that are linked in, and which of them uses which."""

    crates: dict[CrateId, Crate] = field(default_factory=dict)
    uses: dict[CrateId, set[CrateId]] = field(default_factory=dict)

    def third_party(self) -> list[Crate]:
        """The crates of others, in the order of their names."""
        return [self.crates[key] for key in sorted(self.crates) if not self.crates[key].is_own]


def cargo(*arguments: str, root: Path = ROOT) -> str:
    """Output of a cargo command that must not change Cargo.lock."""
    done = subprocess.run(
        ["cargo", *arguments, "--locked"], cwd=root, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def shipped(target: str = DEFAULT_TARGET, root: Path = ROOT) -> Graph:
    """The crates of everything in SHIPPED_PACKAGES together."""
    known = _packages(root)
    graph = Graph()
    # One at a time: together each would get the features that only the other one asks for.
    for package in SHIPPED_PACKAGES:
        tree = ("tree", "-p", package, "--edges", EDGES, "--target", target)
        output = cargo(*tree, "--prefix", "depth", "--format", "|{p}", root=root)
        path: list[CrateId] = []
        for line in output.splitlines():
            found = _LINE.match(line)
            if not found:
                raise ValueError(f"cargo tree printed a line of another form: {line!r}")
            key = CrateId(found["name"], found["version"])
            del path[int(found["depth"]) :]
            if path:
                graph.uses.setdefault(path[-1], set()).add(key)
            path.append(key)
            graph.uses.setdefault(key, set())
            graph.crates[key] = known[key]
    return graph


def workspace_version(root: Path = ROOT) -> str:
    """The version that all packages of this repository share."""
    manifest = tomllib.loads((root / "Cargo.toml").read_text())
    return str(manifest["workspace"]["package"]["version"])


def _packages(root: Path) -> dict[CrateId, Crate]:
    """All crates that Cargo.lock names, of whatever use."""
    metadata: dict[str, Any] = json.loads(cargo("metadata", "--format-version", "1", root=root))
    lock = tomllib.loads((root / "Cargo.lock").read_text())
    checksums = {
        CrateId(entry["name"], entry["version"]): entry.get("checksum") for entry in lock["package"]
    }
    found = {}
    for package in metadata["packages"]:
        key = CrateId(package["name"], package["version"])
        found[key] = Crate(
            id=key,
            license=package["license"] or "",
            folder=Path(package["manifest_path"]).parent,
            checksum=checksums[key],
            repository=package["repository"],
            license_file=package["license_file"],
        )
    return found
