#!/usr/bin/env python3
"""Writes the bill of materials of what ships, as CycloneDX 1.5 in JSON.

    sbom.py [--target TRIPLE] [--file FILE]... OUTPUT

Components are the crates that are linked in, with the graph of their uses and the checksums of their
packages, the C library of the static program, and both Python packages with what they require. Each
FILE is listed with its own hash. The same commit and files give the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import tomllib
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from shipped_crates import DEFAULT_TARGET, ROOT, Crate, Graph, shipped, workspace_version

SPEC_VERSION = "1.5"
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://cyclonedx.org/forebay")
PYTHON_PROJECTS = ("sdk", "pytorch")
_REQUIREMENT = re.compile(r"^\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[^]]*\])?\s*([^;]*)(;.*)?$")
Component = dict[str, Any]


def crate_component(crate: Crate) -> Component:
    """A crate that is linked in."""
    purl = f"pkg:cargo/{crate.id.name}@{crate.id.version}"
    component: Component = {
        "type": "library",
        "bom-ref": purl,
        "name": crate.id.name,
        "version": crate.id.version,
        "purl": purl,
        "scope": "required",
    }
    if crate.license:
        # Old manifests write "A/B" for "A OR B".
        expression = re.sub(r"\s*/\s*", " OR ", crate.license)
        component["licenses"] = [{"expression": expression}]
    if crate.checksum:
        component["hashes"] = [{"alg": "SHA-256", "content": crate.checksum}]
    if crate.repository:
        component["externalReferences"] = [{"type": "vcs", "url": crate.repository}]
    return component


def python_components(root: Path = ROOT) -> tuple[list[Component], dict[str, set[str]]]:
    """Both Python packages and their requirements, and the requirements of each component.

    A requirement of an extra alone is optional. None of the packages that are required is shipped: their
    versions are those that pip chooses, so that they have ranges here.
    """
    version = workspace_version(root)
    components: dict[str, Component] = {}
    requires: dict[str, set[str]] = {}
    projects = {}
    for folder in PYTHON_PROJECTS:
        project = tomllib.loads((root / folder / "pyproject.toml").read_text())["project"]
        name = project["name"]
        purl = f"pkg:pypi/{name}@{version}"
        projects[name] = project
        requires[purl] = set()
        components[name] = {
            "type": "library",
            "bom-ref": purl,
            "name": name,
            "version": version,
            "purl": purl,
            "scope": "required",
            "description": project["description"],
            "licenses": [{"expression": project["license"]}],
        }
    for name, project in projects.items():
        extras = project.get("optional-dependencies", {})
        wanted = [(text, "required") for text in project.get("dependencies", [])]
        wanted += [(text, "optional") for texts in extras.values() for text in texts]
        for text, scope in wanted:
            found = _REQUIREMENT.match(text)
            if not found:
                raise ValueError(f"{name}: cannot read the requirement {text!r}")
            other, versions, marker = found[1], found[3].strip(), (found[4] or "").lstrip("; ")
            if other not in components:
                properties = {"forebay:requirement": versions, "forebay:marker": marker}
                components[other] = {
                    "type": "library",
                    "bom-ref": f"pkg:pypi/{other}",
                    "name": other,
                    "purl": f"pkg:pypi/{other}",
                    "scope": scope,
                    "properties": [
                        {"name": key, "value": value} for key, value in properties.items() if value
                    ],
                }
            requires[components[name]["bom-ref"]].add(components[other]["bom-ref"])
    return [components[name] for name in sorted(components)], requires


def toolchain_components() -> list[Component]:
    """Components that rustc links into the program besides crates."""
    listed = (
        ("rust-std", "MIT OR Apache-2.0", "https://github.com/rust-lang/rust"),
        ("glibc", "LGPL-2.1-or-later", "https://sourceware.org/git/glibc.git"),
    )
    return [
        {
            "type": "library",
            "bom-ref": f"toolchain:{name}",
            "name": name,
            "scope": "required",
            "licenses": [{"expression": license_}],
            "externalReferences": [{"type": "vcs", "url": url}],
        }
        for name, license_, url in listed
    ]


def file_component(file: Path) -> Component:
    """A file that ships, with its hash."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return {
        "type": "file",
        "bom-ref": f"file:{file.name}",
        "name": file.name,
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }


def bill(graph: Graph, files: Iterable[Path], created: int) -> dict[str, Any]:
    """The whole document."""
    version = workspace_version()
    crates = {key: crate_component(graph.crates[key]) for key in sorted(graph.crates)}
    python, requires = python_components()
    toolchain = toolchain_components()
    root = f"forebay@{version}"
    uses = {
        component["bom-ref"]: {crates[used]["bom-ref"] for used in graph.uses[key]}
        for key, component in crates.items()
    }
    uses |= requires
    # The wheel of the SDK carries its native core and the program.
    cores = {c["bom-ref"] for k, c in crates.items() if k.name in ("forebay-cli", "forebay-sdk")}
    uses[f"pkg:pypi/forebay@{version}"] |= cores
    linked_by_rustc = {component["bom-ref"] for component in toolchain}
    for core in cores:
        uses[core] |= linked_by_rustc
    uses[root] = {f"pkg:pypi/forebay@{version}", f"pkg:pypi/forebay-torch@{version}", *cores}
    components = [*crates.values(), *python, *toolchain, *(file_component(f) for f in files)]
    for component in components:
        uses.setdefault(component["bom-ref"], set())
    document: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "tools": {"components": [{"type": "application", "name": "forebay ci/dist/sbom.py"}]},
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": "forebay",
                "version": version,
                "licenses": [{"expression": "Apache-2.0"}],
            },
        },
        "components": components,
        "dependencies": [{"ref": ref, "dependsOn": sorted(uses[ref])} for ref in sorted(uses)],
    }
    # A number that is the same for the same content.
    content = json.dumps(document, sort_keys=True)
    document["serialNumber"] = f"urn:uuid:{uuid.uuid5(NAMESPACE, content)}"
    return document


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--target", default=DEFAULT_TARGET)
    parser.add_argument("--file", type=Path, action="append", default=[])
    parser.add_argument("output", type=Path)
    given = parser.parse_args()
    created = int(os.environ.get("RELEASE_EPOCH", "0"))
    document = bill(shipped(given.target), given.file, created)
    given.output.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
