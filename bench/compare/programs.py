"""Finds the programs of the peers, or builds them; a peer that is missing has a reason."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import peers
from compare import results

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = {"aisnode": "aistore.sh", "minio": "minio.sh", "fake-gcs": "fake_gcs.sh"}
"""Scripts of `ci/` that print the path of a program, and build it if it is not there."""
PEERS = {"aisnode": "AIStore", "minio": "MinIO", "fake-gcs": "fake-gcs-server", "nginx": "nginx"}
NO_GO = 3
"""Exit code of a script that cannot build because Go is missing."""


def find(given: Mapping[str, str | None]) -> tuple[dict[str, str], dict[str, str]]:
    """Programs by name, and the reasons of missing peers by the peer's name."""
    found = {name: path for name, path in given.items() if path}
    missing: dict[str, str] = {}
    for name, script in SCRIPTS.items():
        if name in found:
            continue
        done = subprocess.run([ROOT / "ci" / script], stdout=subprocess.PIPE, text=True)
        if done.returncode == 0:
            found[name] = done.stdout.strip()
        else:
            why = "Go is missing" if done.returncode == NO_GO else "it cannot be built"
            missing[PEERS[name]] = f"ci/{script}: {why}"
    if program := peers.found("nginx") or peers.found("/usr/sbin/nginx"):
        found["nginx"] = program
    else:
        missing["nginx"] = "it is not installed (a package of the system)"
    return found, missing


def versions(found: Mapping[str, str]) -> dict[str, str]:
    """Versions of Forebay, the peers' programs and their Python packages."""
    commands = {
        "Forebay": [found["forebay"], "--version"],
        "AIStore": [found.get("aisnode", ""), "-version"],
        "MinIO": [found.get("minio", ""), "--version"],
        "nginx": [found.get("nginx", ""), "-v"],
    }
    named = {peer: results.program_version(words) for peer, words in commands.items() if words[0]}
    # Builds of a module print no version of their own; go has noted it in the program.
    for peer, name in (("AIStore", "aisnode"), ("MinIO", "minio"), ("fake-gcs-server", "fake-gcs")):
        if program := found.get(name):
            noted = module_version(program)
            named[peer] = noted or named.get(peer, "unknown")
    return named | results.package_versions()


def module_version(program: str) -> str:
    """The version of the Go module that a program was built from, or an empty text."""
    try:
        done = subprocess.run(["go", "version", "-m", program], capture_output=True, text=True)
    except OSError:
        return ""
    for line in done.stdout.splitlines():
        words = line.split()
        if words[:1] == ["mod"] and len(words) > 2 and words[2] != "(devel)":
            return words[2]
    return Path(program).name.rpartition("-")[2] if "-v" in Path(program).name else ""
