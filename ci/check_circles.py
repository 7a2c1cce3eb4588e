#!/usr/bin/env python3
"""Checks that files do not depend on each other in a circle, except for those listed below; part of
`make check`.

A file depends on another one if it names an item that is defined there: in Rust by a `use` or a path,
followed through re-exports; in Python by an import, also one for types only. A module and those in its
folder are one unit to its users, so two kinds of dependency do not count: of a file on a module that it
lies in, and of a module on children that it only declares or re-exports. Tests are left out. A circle is
a largest set of files of which each depends, in some steps, on each other one.

`ci/check_circles.py --show` prints each circle with the dependencies in it. Needs only the standard
library.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent

# Folders with the sources of a Rust crate (below `src`), and of a Python package.
CRATES = sorted(
    path.parent
    for path in ROOT.glob("**/src/lib.rs")
    if path.relative_to(ROOT).parts[0] not in {"build", "tests"}
)
PACKAGES = [ROOT / "sdk/python/forebay", ROOT / "pytorch/src/forebay_torch"]

# The number may only become smaller.
MAX_CIRCLES = 8

# A file of the circle -> why the circle stays. Each circle has exactly one line.
ALLOWED: dict[str, str] = {
    "core/src/state/mod.rs": "the state of the cluster and its parts, which decide by the whole state",
    "gateway/src/meta/group.rs": "a group of gateways and the changes that it orders",
    "sdk/python/forebay/client.py": "types only: a client makes buckets, which have their client",
    "crates/clouds/src/composed/group.rs": "a group gathers objects, and ends when they are gathered",
    "crates/store/src/engine/mod.rs": "the one writer of a disk: requests, groups, plans, answers",
    "crates/store/src/format/trailer.rs": "the second format of a trailer contains the first",
    "crates/store/src/record.rs": "the space that a record takes depends on its format",
    "crates/store/src/shared.rs": "the state of a disk contains its reserve and its partial copies, which use its log",
}


class Module(NamedTuple):
    """A file of a crate, as a module."""

    file: Path
    text: str
    items: set[str]  # names of items that are defined in it
    children: set[str]
    reexports: dict[str, tuple[str, ...]]  # name -> absolute path of what it names
    globs: list[tuple[str, ...]]


def without_tests(text: str) -> str:
    """Rust source without comments, strings and test modules."""
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r'"(?:\\.|[^"\\])*"', '""', text)
    text = re.sub(r"#\[cfg\((?:all\()?test[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))? )?mod \w+;", "", text)
    cut = re.search(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*mod \w+ \{", text)
    return text[: cut.start()] if cut else text


def uses(tree: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """The paths of a `use` tree, with the name that each gets; the name of a glob is `*`."""
    tree = tree.strip()
    brace = tree.find("{")
    if brace < 0:
        path, _, alias = tree.partition(" as ")
        parts = tuple(part.strip() for part in path.split("::") if part.strip())
        if parts:
            yield (parts[:-1], "*") if parts[-1] == "*" else (parts, alias.strip() or parts[-1])
        return
    prefix = tuple(part.strip() for part in tree[:brace].split("::") if part.strip())
    depth, start = 0, brace + 1
    for at in range(brace, len(tree)):
        depth += {"{": 1, "}": -1}.get(tree[at], 0)
        if (tree[at] == "," and depth == 1) or depth == 0:
            for path, name in uses(tree[start:at]):
                if path == ("self",):
                    yield prefix, prefix[-1] if prefix else ""
                else:
                    yield prefix + path, name
            start = at + 1
            if depth == 0:
                return


USE = re.compile(r"(?m)^\s*((?:pub(?:\([^)]*\))?\s+)?)use\s+([^;]+);")
ITEM = re.compile(
    r"(?m)^(?:pub(?:\([^)]*\))? )?(?:unsafe )?(?:async |const )?(?:unsafe )?"
    r"(?:struct|enum|union|trait|type|fn|const|static|macro_rules!) ?(?:mut )?(\w+)"
)
CHILD = re.compile(r"(?m)^(?:pub(?:\([^)]*\))? )?mod (\w+);")


def absolute(module: tuple[str, ...], path: tuple[str, ...], children: set[str]) -> tuple[str, ...] | None:
    """A path inside of the crate from its root; None if it leads to another crate."""
    base = list(module)
    if not path:
        return None
    if path[0] == "crate":
        return path[1:]
    if path[0] == "self":
        return tuple(base) + path[1:]
    if path[0] == "super":
        rest = path
        while rest and rest[0] == "super":
            base, rest = base[:-1], rest[1:]
        return tuple(base) + rest
    return tuple(base) + path if path[0] in children else None


def modules_of(source: Path) -> dict[tuple[str, ...], Module]:
    """The modules of a crate that are files of their own, by path."""
    modules: dict[tuple[str, ...], Module] = {}
    for file in sorted(source.rglob("*.rs")):
        if re.search(r"(^|_)tests?$", file.stem) or file.name == "main.rs":
            continue
        parts = file.relative_to(source).with_suffix("").parts
        path = parts[:-1] if parts[-1] in {"mod", "lib"} else parts
        text = without_tests(file.read_text())
        children = set(CHILD.findall(text))
        reexports: dict[str, tuple[str, ...]] = {}
        globs: list[tuple[str, ...]] = []
        for visibility, tree in USE.findall(text):
            for used, name in uses(tree) if visibility else ():
                target = absolute(path, used, children)
                if target is not None and name == "*":
                    globs.append(target)
                elif target is not None:
                    reexports[name] = target
        modules[path] = Module(file, text, set(ITEM.findall(text)), children, reexports, globs)
    return modules


def resolve(modules: dict[tuple[str, ...], Module], path: tuple[str, ...], depth: int = 0) -> Path | None:
    """The file with the definition of what an absolute path names."""
    for length in range(len(path), -1, -1):
        module = modules.get(path[:length])
        if module is None:
            continue
        if length == len(path):
            return module.file
        name = path[length]
        if depth < 8 and name in module.reexports and module.reexports[name] != path[: length + 1]:
            return resolve(modules, module.reexports[name] + path[length + 1 :], depth + 1)
        if name not in module.items and depth < 8:
            for glob in module.globs:
                found = resolve(modules, glob + path[length:], depth + 1)
                if found is not None and found != getattr(modules.get(glob), "file", None):
                    return found
        return module.file
    return None


def rust_edges(source: Path) -> dict[Path, set[Path]]:
    """Which file of a crate depends on which."""
    modules = modules_of(source)
    edges: dict[Path, set[Path]] = {}
    for path, module in modules.items():
        named: set[tuple[str, ...]] = set()
        local: dict[str, tuple[str, ...]] = {}
        for visibility, tree in USE.findall(module.text):
            for used, name in uses(tree):
                target = absolute(path, used, module.children)
                if target is None:
                    continue
                local[name] = target
                if not visibility:
                    named.add(target)
        body = USE.sub("", module.text)
        for text in re.findall(r"\b(?:crate|super|self)(?:::\w+)+", body):
            target = absolute(path, tuple(text.split("::")), module.children)
            if target is not None:
                named.add(target)
        # Paths that begin with a child, or with a module that a `use` brought.
        for first, second in re.findall(r"(?<![\w:])([a-z_]\w*)::(\w+)", body):
            if first in module.children:
                named.add((*path, first, second))
            elif first in local:
                named.add((*local[first], second))
        # Names that a re-export brought.
        for name, target in module.reexports.items():
            if re.search(rf"\b{name}\b", body):
                named.add(target)
        files = {resolve(modules, target) for target in named}
        around = {modules[path[:length]].file for length in range(len(path) + 1) if path[:length] in modules}
        edges[module.file] = {file for file in files if file is not None} - around
    return edges


def python_edges(package: Path) -> dict[Path, set[Path]]:
    """Which file of a Python package depends on which."""
    edges: dict[Path, set[Path]] = {}
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package.parent).with_suffix("").parts
        here = parts if file.name != "__init__.py" else parts[:-1]
        inside = here if file.name == "__init__.py" else here[:-1]
        found: set[Path] = set()
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.ImportFrom | ast.Import) or file.name == "__init__.py":
                continue
            names: list[tuple[str, ...]] = []
            if isinstance(node, ast.Import):
                names = [tuple(alias.name.split(".")) for alias in node.names]
            else:
                base = inside[: len(inside) - node.level + 1] if node.level else ()
                module = tuple((node.module or "").split(".")) if node.module else ()
                names = [base + module + (alias.name,) for alias in node.names]
            for name in names:
                for length in (len(name), len(name) - 1):
                    path = package.parent.joinpath(*name[:length])
                    if path.with_suffix(".py").is_file() and name[0] == package.name:
                        found.add(path.with_suffix(".py"))
                        break
        edges[file] = found - {file}
    return edges


def circles(edges: dict[Path, set[Path]]) -> list[list[Path]]:
    """Tarjan's strongly connected components of more than one file (SIAM J. Comput. 1, 1972)."""
    index: dict[Path, int] = {}
    low: dict[Path, int] = {}
    stack: list[Path] = []
    found: list[list[Path]] = []

    def visit(file: Path) -> None:
        index[file] = low[file] = len(index)
        stack.append(file)
        for other in sorted(edges.get(file, ())):
            if other not in index:
                visit(other)
                low[file] = min(low[file], low[other])
            elif other in stack:
                low[file] = min(low[file], index[other])
        if low[file] == index[file]:
            at = stack.index(file)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for file in sorted(edges):
        if file not in index:
            visit(file)
    return found


def main() -> int:
    sys.setrecursionlimit(10_000)
    all_edges: dict[Path, set[Path]] = {}
    for source in CRATES:
        all_edges |= rust_edges(source)
    for package in PACKAGES:
        all_edges |= python_edges(package)
    found = circles(all_edges)
    problems = []
    unused = set(ALLOWED)
    for circle in found:
        names = [str(file.relative_to(ROOT)) for file in circle]
        known = [name for name in names if name in ALLOWED]
        unused -= set(known)
        if "--show" in sys.argv[1:]:
            print(f"{len(names)} files: {', '.join(names)}")
            for file in circle:
                inside = sorted(str(to.relative_to(ROOT)) for to in all_edges[file] & set(circle))
                print(f"    {file.relative_to(ROOT)} -> {', '.join(inside)}")
        if len(known) != 1:
            problems.append(f"a circle of {len(names)} files: {', '.join(names)}; see --show")
    problems.extend(f"{name} is in no circle: remove its line" for name in sorted(unused))
    if len(found) > MAX_CIRCLES:
        problems.append(f"{len(found)} circles; at most {MAX_CIRCLES} are allowed")
    for problem in problems:
        print(f"check_circles: {problem}")
    if not problems:
        print(f"check_circles: ok ({len(found)} circles, {len(all_edges)} files)")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
