#!/usr/bin/env python3
"""Checks the crates that the workspace uses against deny.toml: licences, bans, sources, wildcards.

Part of `make check`: the rules of cargo-deny that need no more than cargo's own view of the crates. `make
deny` runs cargo-deny itself, which takes minutes to build. Advisories are in neither: their database is a
git repository, which a machine with package registries alone does not reach; run `cargo deny check
advisories` elsewhere. Needs only the standard library.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


def is_allowed(expression: str, allowed: set[str]) -> bool:
    """Whether an SPDX expression can be met with allowed licences alone: OR by one side, AND by both.

    `/` between licences is cargo's earlier form of OR. Raises ValueError for another syntax.
    """
    tokens = re.findall(r"\(|\)|[^\s()/]+|/", expression)
    position = 0

    def take(expected: str | None = None) -> str:
        nonlocal position
        if position == len(tokens) or expected not in (None, tokens[position]):
            raise ValueError(f"not an SPDX expression: {expression}")
        position += 1
        return tokens[position - 1]

    def peek() -> str | None:
        return tokens[position] if position < len(tokens) else None

    def one() -> bool:
        name = take()
        if name == "(":
            inner = either()
            take(")")
            return inner
        if not re.fullmatch(r"[A-Za-z0-9.+-]+", name):
            raise ValueError(f"not an SPDX expression: {expression}")
        if peek() == "WITH":
            take()
            name += " WITH " + take()
        return name in allowed

    def both() -> bool:
        met = one()
        while peek() == "AND":
            take()
            met = one() and met
        return met

    def either() -> bool:
        met = both()
        while peek() in ("OR", "/"):
            take()
            met = both() or met
        return met

    met = either()
    if peek() is not None:
        raise ValueError(f"not an SPDX expression: {expression}")
    return met


class Crate(NamedTuple):
    """One crate that the workspace uses, as `cargo tree` prints it."""

    name: str
    version: str
    licence: str
    # Where it is from: "" for crates.io, else a folder, a git repository or a registry.
    source: str


def cargo(*arguments: str) -> str:
    done = subprocess.run(["cargo", *arguments], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"check_supply: cargo {arguments[0]} failed:\n{done.stderr}")
    return done.stdout


def parsed(line: str) -> Crate:
    """A line of `cargo tree --format "{p}\\t{l}"`: `name v1.2.3 (SOURCE) (proc-macro)`, then the licence."""
    package, _, licence = line.partition("\t")
    name, version, *notes = package.split(" ", 2)
    notes = re.findall(r"\(([^)]*)\)", " ".join(notes))
    sources = [note for note in notes if note not in ("proc-macro", "*")]
    return Crate(name, version.removeprefix("v"), licence.removesuffix(" (*)"), "".join(sources))


def crates_of(target: str) -> set[Crate]:
    """The crates that a build of the workspace for this target uses, with those of its tests.

    `cargo metadata` also names optional crates that no feature turns on.
    """
    lines = cargo(
        *("tree", "--locked", "--workspace", "--target", target, "--prefix", "none"),
        *("--edges", "normal,build,dev", "--format", "{p}\t{l}"),
    )
    return {parsed(line) for line in lines.splitlines() if line}


def problem_of(crate: Crate, rules: dict) -> str | None:
    """What deny.toml forbids about a crate, if anything."""
    banned = {ban["crate"]: ban["reason"] for ban in rules["bans"]["deny"]}
    if crate.name in banned:
        return f"it is banned: {banned[crate.name]}"
    if crate.source.startswith(str(ROOT)):
        return None
    if crate.source:
        return f"it is from {crate.source}, which is not crates.io"
    if not crate.licence:
        return "its manifest names no licence"
    try:
        if is_allowed(crate.licence, set(rules["licenses"]["allow"])):
            return None
    except ValueError as e:
        return str(e)
    return f"the licence {crate.licence} is not in deny.toml"


def wildcards() -> list[str]:
    """Dependencies of our crates that take any version from a registry."""
    about = json.loads(cargo("metadata", "--format-version", "1", "--locked", "--no-deps"))
    return [
        f"{package['name']}: {dependency['name']} = \"*\" takes any version"
        for package in about["packages"]
        for dependency in package["dependencies"]
        if dependency["req"] == "*" and dependency.get("path") is None
    ]


def main() -> int:
    rules = tomllib.loads((ROOT / "deny.toml").read_text())
    crates = set[Crate]().union(*map(crates_of, rules["graph"]["targets"]))
    if all(crate.source for crate in crates):
        sys.exit("check_supply: cargo tree names no crate of crates.io")
    problems = wildcards()
    for crate in sorted(crates):
        if (problem := problem_of(crate, rules)) is not None:
            problems.append(f"{crate.name} {crate.version}: {problem}")
    for problem in problems:
        print(f"check_supply: {problem}")
    if problems:
        return 1
    print(
        f"check_supply: licences, bans and sources of {len(crates)} crates are as in deny.toml; "
        "advisories: not run"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
