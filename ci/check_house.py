#!/usr/bin/env python3
"""House rules that no compiler checks; part of `make check`. Changes nothing.

Each `check_*` function takes the repository's root and its files (relative paths) and returns
its problems. Files over 400 lines are named as a hint only. Needs only the standard library.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_BYTES = 1_000_000
HINT_LINES = 400
# Home folders of people. Written with a class so that this line does not match itself.
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(?:home|Users)/[a-z][\w.-]*/|(?<![\w.$}])/roo[t]/")
LOG_CALL = re.compile(r"\b(?:trace|debug|info|warn|error|span|event)!\s*\(")
ERROR_TEXT = re.compile(r'#\[error\(\s*"((?:[^"\\]|\\.)*)"')
STRING = re.compile(r'(=\s*)?"((?:[^"\\]|\\.)*)"')
BOOK = "docs/book/"
SUMMARY = "docs/SUMMARY.md"
# A test as the book names it, and the tests of a Rust file.
CITED = re.compile(r"`([\w./-]+\.(?:rs|py))::(\w+)`")
RUST_TEST = re.compile(r"#\[(?:tokio::)?test\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:async )?fn (\w+)")


def git(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)


def repository_files(root: Path) -> list[str]:
    """Files that are tracked, or would be by `git add .`."""
    done = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if done.returncode != 0:
        sys.exit(f"check_house: needs a git checkout: {done.stderr.strip()}")
    return sorted(f for f in set(done.stdout.split("\0")) if f and (root / f).is_file())


def text_of(root: Path, name: str) -> str | None:
    """The file's text, or None when it is not text."""
    try:
        return (root / name).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def check_target_crate(root: Path, files: list[str]) -> list[str]:
    """The crate in target/ is not mistaken for cargo's output folder."""
    crate = "target/src/lib.rs"
    problems = []
    if git(root, "ls-files", "--error-unmatch", crate).returncode != 0:
        problems.append(f"{crate} is not tracked by git")
    # --no-index: a tracked file is never reported as ignored otherwise.
    if git(root, "check-ignore", "--no-index", "--quiet", crate).returncode == 0:
        problems.append(f"{crate} is ignored; take target/ out of the ignore rules")
    config = root / ".cargo/config.toml"
    if not config.is_file() or not re.search(r'(?m)^target-dir = "build"$', config.read_text()):
        problems.append('.cargo/config.toml must say target-dir = "build"')
    return problems


def check_sizes(root: Path, files: list[str]) -> list[str]:
    return [
        f"{name}: {size} bytes; no file over {MAX_BYTES} belongs in the repository"
        for name in files
        if (size := (root / name).stat().st_size) > MAX_BYTES
    ]


def check_machine_paths(root: Path, files: list[str]) -> list[str]:
    """No path of the machine a file was written on."""
    own = [str(p) for p in (root, Path.home()) if len(p.parts) > 2]
    problems = []
    for name in files:
        for number, line in enumerate((text_of(root, name) or "").splitlines(), 1):
            if MACHINE_PATH.search(line) or any(path in line for path in own):
                problems.append(f"{name}:{number}: names a folder of one machine")
    return problems


def check_versions(root: Path, files: list[str]) -> list[str]:
    """Both Python packages carry the version of the Rust workspace."""
    wanted = declared_version((root / "Cargo.toml").read_text(), "workspace.package")
    problems = []
    for name in ("sdk/pyproject.toml", "pytorch/pyproject.toml"):
        if name not in files:
            problems.append(f"{name} is missing")
            continue
        text = (root / name).read_text()
        found = declared_version(text, "project")
        # maturin fills a dynamic version in from Cargo.toml, so it cannot differ.
        from_cargo = "maturin" in text and re.search(r"(?m)^dynamic = \[.*\"version\"", text)
        if found != wanted and not (found is None and from_cargo):
            problems.append(f"{name} has version {found}, Cargo.toml has {wanted}")
    return problems


def declared_version(toml: str, table: str) -> str | None:
    body = re.search(rf"(?ms)^\[{re.escape(table)}\]$(.*?)(?=^\[|\Z)", toml)
    version = body and re.search(r'(?m)^version = "(.+?)"', body.group(1))
    return version.group(1) if version else None


def check_rust_files(root: Path, files: list[str]) -> list[str]:
    """Each Rust file opens by saying its job, under a name that says it too."""
    problems = []
    for name in files:
        if not name.endswith(".rs"):
            continue
        if Path(name).stem in {"utils", "util", "helpers", "common", "misc"}:
            problems.append(f"{name}: name a file after what is in it")
        if not (text_of(root, name) or "").startswith("//!"):
            problems.append(f"{name}: must start with //! and the file's job")
    return problems


def check_messages(root: Path, files: list[str]) -> list[str]:
    """Log lines and error texts start lower case and have no final period."""
    problems = []
    for name in files:
        if not name.endswith(".rs"):
            continue
        text = text_of(root, name) or ""
        for at, message in messages(text):
            # A capital may start a name in capitals: "S3 ...", "GET ...", "TLS ...".
            shouting = re.match(r"[A-Z][a-z]", message)
            if shouting or re.search(r"[^.]\.$", message):
                line = text.count("\n", 0, at) + 1
                problems.append(f"{name}:{line}: message {message!r}: lower case, no final period")
    return problems


def messages(text: str) -> Iterator[tuple[int, str]]:
    """Position and message of each log call and each thiserror text."""
    for found in ERROR_TEXT.finditer(text):
        yield found.start(), found.group(1)
    for call in LOG_CALL.finditer(text):
        end = text.find(");", call.end())
        # The message is the first string that is not the value of a field.
        for string in STRING.finditer(text, call.end(), end if end >= 0 else len(text)):
            if not string.group(1):
                yield call.start(), string.group(2)
                break


def check_python_layers(root: Path, files: list[str]) -> list[str]:
    """To import forebay never imports torch; forebay_torch uses only what forebay makes public."""
    problems = []
    for name in files:
        in_sdk = name.startswith("sdk/python/")
        if not name.endswith(".py") or not (in_sdk or name.startswith("pytorch/src/")):
            continue
        text = text_of(root, name) or ""
        for line, module in imports(text):
            parts = module.split(".")
            # A method that makes a tensor may: its caller has torch.
            indented = text.splitlines()[line - 1][:1].isspace() and parts[0] == "torch"
            if in_sdk and not indented and parts[0] in {"torch", "numpy", "forebay_torch"}:
                problems.append(f"{name}:{line}: forebay must not import {parts[0]}")
            if not in_sdk and parts[0] == "forebay" and any(p.startswith("_") for p in parts[1:]):
                problems.append(f"{name}:{line}: {module} is private to forebay")
    return problems


def imports(source: str) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything imported, `from a import b` as a.b."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def check_book(root: Path, files: list[str]) -> list[str]:
    """Each promise of the book names tests that exist, and its index names each promise."""
    pages = [name for name in files if name.startswith(BOOK) and name.endswith(".md")]
    index = text_of(root, f"{BOOK}README.md") if f"{BOOK}README.md" in files else ""
    known: dict[str, set[str]] = {}
    problems = []
    for page in pages:
        cited = CITED.findall(text_of(root, page) or "")
        own = page.removeprefix(BOOK)
        if own != "README.md":
            if not cited:
                problems.append(f"{page}: names no test that proves its promise")
            if f"]({own})" not in (index or ""):
                problems.append(f"{page}: is not in {BOOK}README.md")
        for name, test in cited:
            if name not in known:
                known[name] = tests_in(root, name) if name in files else set()
            if test not in known[name]:
                problems.append(f"{page}: there is no test {name}::{test}")
    return problems


def check_summary(root: Path, files: list[str]) -> list[str]:
    """Each page below docs/ is in the table of contents of the book (`make book`), and once."""
    pages = {name for name in files if re.fullmatch(r"docs/.*\.md", name)} - {SUMMARY}
    if not pages:
        return []
    listed = re.findall(r"\]\(([^)#]+\.md)\)", text_of(root, SUMMARY) or "" if SUMMARY in files else "")
    known = [f"docs/{page}" for page in listed]
    problems = [f"{page}: is not in {SUMMARY}" for page in sorted(pages.difference(known))]
    problems += [f"{SUMMARY}: {page} does not exist" for page in known if page not in pages]
    problems += [f"{SUMMARY}: {page} is listed twice" for page in pages if known.count(page) > 1]
    return problems


def tests_in(root: Path, name: str) -> set[str]:
    """Names of the tests in a file."""
    text = text_of(root, name) or ""
    if name.endswith(".rs"):
        return set(RUST_TEST.findall(text))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = (node.name for node in ast.walk(ast.parse(text)) if isinstance(node, functions))
    return {test for test in found if test.startswith("test_")}


CHECKS = (
    check_book,
    check_summary,
    check_target_crate,
    check_sizes,
    check_machine_paths,
    check_versions,
    check_rust_files,
    check_messages,
    check_python_layers,
)


def long_files(root: Path, files: list[str]) -> Iterator[str]:
    for name in files:
        if name.endswith((".rs", ".py")):
            lines = len((text_of(root, name) or "").splitlines())
            if lines > HINT_LINES:
                yield f"{name} has {lines} lines; is there a second idea in it?"


def main() -> int:
    files = repository_files(ROOT)
    problems = [problem for check in CHECKS for problem in check(ROOT, files)]
    for hint in long_files(ROOT, files):
        print(f"check_house: hint: {hint}")
    for problem in problems:
        print(f"check_house: {problem}", file=sys.stderr)
    if not problems:
        print(f"check_house: ok ({len(files)} files)")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
