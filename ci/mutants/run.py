#!/usr/bin/env python3
"""Removes each guard of the data files once, and checks that its tests fail: `make mutants`.

Copies the checkout to build/mutants/tree with both forms of all guards in Rust, compiles it once, runs the tests
without a mutant, then those of each mutant with it. A mutant with a test that passes is an error. Arguments are ids
of mutants; without any, all run. Prints a table, and writes build/mutants/mutants.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import mutants
from mutants import ROOT, VARIABLE, Mutant

OUT = ROOT / "build/mutants"
TREE = OUT / "tree"
TARGET = OUT / "target"
# A test of the copy alone, for which cargo builds the program.
PROGRAM = "program"
# A test that waits for a node that must not start never ends. The longest of them takes a minute.
TEST_TIMEOUT_S = 240
RESULT = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. .*?\b(ok|FAILED|ignored)$", re.MULTILINE)
PANIC = re.compile(r"panicked at [^\n]*:\n(.*?)(?=\n(?:note:|stack|thread|\n|$))", re.DOTALL)


def changed_file(path: Path, content: bytes, mode: int) -> None:
    """Writes a file unless it has this content: cargo compiles a file again whose time is new."""
    if not path.is_file() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    path.chmod(mode)


def copy_tree(all_mutants: list[Mutant]) -> None:
    """The files of the checkout in TREE, with both forms of each guard in Rust."""
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=True,
        text=True,
    )
    names = {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}
    in_rust = [mutant for mutant in all_mutants if mutant.is_compiled]
    for name in names:
        content = (ROOT / name).read_bytes()
        if edits := mutants.edits_of(name, in_rust):
            content = mutants.compiled(content.decode(), edits).encode()
        changed_file(TREE / name, content, (ROOT / name).stat().st_mode & 0o777)
    # With the same features as for all other tests.
    program = f"cli/tests/{PROGRAM}.rs"
    text = '//! Makes cargo build the program.\n\nconst _: &str = env!("CARGO_BIN_EXE_forebay");\n'
    changed_file(TREE / program, text.encode(), 0o644)
    for path in TREE.rglob("*"):
        name = str(path.relative_to(TREE))
        if path.is_file() and name not in names | {program} and "__pycache__" not in name:
            path.unlink()


def packages() -> dict[str, str]:
    """Folder and name of the packages of the workspace."""
    members = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["members"]
    return {m: tomllib.loads((ROOT / m / "Cargo.toml").read_text())["package"]["name"] for m in members}


def seed_target() -> None:
    """Copies the crates of registries that build/release has, so that only the workspace is compiled."""
    own = tuple(name for p in packages().values() for name in (p, p.replace("-", "_")))
    own += tuple(f"lib{name}" for name in own) + ("black_box", "faults", "front", "fuzz", "wire")
    for folder in ("build", "deps", ".fingerprint"):
        source = ROOT / "build/release" / folder
        if source.is_dir() and not (TARGET / "release" / folder).exists():
            print(f"copying {source}", flush=True)

            def ignored(at: str, names: list[str], top: Path = source) -> set[str]:
                return {name for name in names if Path(at) == top and name.startswith(own)}

            shutil.copytree(source, TARGET / "release" / folder, ignore=ignored, symlinks=True)


def place_of(test: str) -> tuple[str, str, str]:
    """Of a test in Rust: the folder of its package, the name of its program, and its file there. The unit tests of a
    package are the program `unit`."""
    path, prefix = test.partition("::")[0], ""
    if path.startswith("crates/"):
        path, prefix = path.removeprefix("crates/"), "crates/"
    folder, kind, within = path.split("/", 2)
    folder = prefix + folder
    if kind != "tests":
        return folder, "unit", within
    if folder == "tests":
        return folder, "black_box", within
    # A folder, or a file by itself, is a program of its own.
    first, _, rest = within.partition("/")
    return folder, first.removesuffix(".rs"), rest


def build(tests: set[str]) -> dict[tuple[str, str], Path]:
    """Compiles what the tests need. Returns programs by the folder of the package and their name."""
    named = {place_of(test)[1] for test in tests} - {"unit"} | {PROGRAM}
    command = ["cargo", "test", "--release", *os.environ.get("CARGO_FLAGS", "").split(), "--no-run"]
    # With the features of the whole workspace, for which the crates of registries are compiled already.
    command += ["--workspace", "--exclude", "forebay-sdk", "--lib", "--bins"]
    command += [word for name in sorted(named) for word in ("--test", name)]
    command += ["--message-format", "json-render-diagnostics"]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(TARGET)}
    # Both forms of a guard leave variables unused.
    with (OUT / "cargo.log").open("w") as log:
        done = subprocess.run(command, cwd=TREE, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    if done.returncode != 0:
        errors = (OUT / "cargo.log").read_text().split("\nerror")[1:]
        sys.exit("mutants: the tree does not compile:\n" + "".join(f"error{text}\n" for text in errors))
    programs = {}
    for line in done.stdout.splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("reason") == "compiler-artifact" and message.get("executable"):
            folder = str(Path(message["manifest_path"]).parent.relative_to(TREE))
            kinds = set(message["target"]["kind"])
            name = message["target"]["name"]
            if message["profile"]["test"]:
                name = name if "test" in kinds else "unit"
            programs[folder, name] = Path(message["executable"])
    return programs


@dataclass
class Program:
    """A program with tests in Rust."""

    path: Path
    folder: Path
    names: list[str] = field(default_factory=list)

    def name_of(self, file: str, function: str, test: str) -> str:
        """The full name of a test; its module follows from its file."""
        found = [name for name in self.names if name.split("::")[-1] == function]
        parts = [re.sub(r"_tests$", "", part) for part in file.removesuffix(".rs").split("/")]
        parts = [part for part in parts if part not in ("tests", "mod", "lib", "main")]
        if len(found) > 1:
            found = [name for name in found if name.split("::")[: len(parts)] == parts]
        if len(found) != 1:
            sys.exit(f"mutants: {test} has {len(found)} tests of this name")
        return found[0]


@dataclass(frozen=True)
class Outcome:
    """A test that ran: whether it passed, and how it failed."""

    passed: bool
    message: str
    seconds: float


class Runner:
    """Runs tests of the tree."""

    def __init__(self, programs: dict[tuple[str, str], Path]) -> None:
        self.paths = programs
        self.programs: dict[tuple[str, str], Program] = {}
        self.skipped = OUT / "skipped.txt"
        self.lock = threading.Lock()

    def environment(self, active: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k not in (VARIABLE, "CARGO_TARGET_DIR")}
        own = {"FOREBAY_SKIPPED": str(self.skipped), "PYTHONDONTWRITEBYTECODE": "1"}
        if ("cli", "forebay") in self.paths:
            own["FOREBAY_BIN"] = str(self.paths["cli", "forebay"])
        return {**kept, **own, VARIABLE: active}

    def run(self, test: str, active: str = "") -> Outcome:
        """Runs one test, with this mutant."""
        file, _, function = test.partition("::")
        begin = time.monotonic()
        if file.endswith(".py"):
            path = ":".join([str(TREE / "pytorch/src"), *filter(None, [os.environ.get("PYTHONPATH")])])
            python = [str(ROOT / "build/venv/bin/python"), "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
            command = [*python, f"{file}::{function}"]
            code, text = self.process(command, TREE, {**self.environment(active), "PYTHONPATH": path})
            passed = code == 0
            # A test that is not found, or does not load, has not failed.
            if code not in (0, 1, None):
                sys.exit(f"mutants: {test}: pytest ended with {code}:\n{text}")
        else:
            program, name = self.found(test)
            command = [str(program.path), "--exact", name, "--nocapture", "--test-threads", "1"]
            environment = {**self.environment(active), "CARGO_MANIFEST_DIR": str(program.folder)}
            code, text = self.process(command, program.folder, environment)
            passed = code == 0
            if code == 0 and not re.search(r"^test result: ok\. 1 passed", text, re.MULTILINE):
                sys.exit(f"mutants: {test} did not run:\n{text}")
        return Outcome(passed, "" if passed else message_of(code, text), time.monotonic() - begin)

    def process(
        self, command: list[str], folder: Path, environment: dict[str, str]
    ) -> tuple[int | None, str]:
        """The exit code and output of a command; no code if it did not end in time."""
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            text, _ = process.communicate(timeout=TEST_TIMEOUT_S)
            return process.returncode, text.decode(errors="replace")
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            # Nodes that a failed test left; they end with the process that started them.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def found(self, test: str) -> tuple[Program, str]:
        """The program of a test in Rust, and its name there."""
        folder, name, within = place_of(test)
        with self.lock:
            if (folder, name) not in self.programs:
                path = self.paths.get((folder, name))
                if path is None:
                    sys.exit(f"mutants: {test} is in no program that cargo built")
                listed = subprocess.run([path, "--list"], capture_output=True, text=True, check=True)
                names = [line.removesuffix(": test") for line in listed.stdout.splitlines() if ": test" in line]
                self.programs[folder, name] = Program(path, TREE / folder, names)
        program = self.programs[folder, name]
        return program, program.name_of(within, test.partition("::")[2], test)


def message_of(code: int | None, text: str) -> str:
    """How a test failed, in one line."""
    if code is None:
        return f"it did not end within {TEST_TIMEOUT_S} s"
    if (panic := PANIC.search(text)) is not None:
        return " ".join(panic.group(1).split())[:300]
    errors = [line for line in text.splitlines() if line.startswith(("E  ", "FAILED", "error"))]
    return " ".join((errors or text.strip().splitlines()[-1:] or [""])[0].split())[:300]


@contextlib.contextmanager
def replaced(mutant: Mutant):
    """The tree with the guards of a mutant in Python, or in the chart, removed."""
    files = {edit.file: (TREE / edit.file).read_text(encoding="utf-8") for edit in mutant.edits}
    try:
        for edit in mutant.edits:
            text = (TREE / edit.file).read_text(encoding="utf-8")
            start, end = edit.place(text)
            (TREE / edit.file).write_text(text[:start] + edit.removed + text[end:], encoding="utf-8")
        yield
    finally:
        for file, text in files.items():
            (TREE / file).write_text(text, encoding="utf-8")


def with_mutant(runner: Runner, mutant: Mutant) -> dict[str, Outcome]:
    with contextlib.nullcontext() if mutant.is_compiled else replaced(mutant):
        return {test: runner.run(test, mutant.id) for test in mutant.tests}


def check_without_mutant(runner: Runner, tests: list[str], jobs: int) -> None:
    """Ends unless all tests pass, and none is skipped, without a mutant."""
    runner.skipped.write_text("")
    with ThreadPoolExecutor(jobs) as pool:
        outcomes = dict(zip(tests, pool.map(runner.run, tests), strict=True))
    failed = [f"{test}: {o.message}" for test, o in outcomes.items() if not o.passed]
    skipped = runner.skipped.read_text().splitlines()
    if failed or skipped:
        sys.exit("mutants: without a mutant, tests fail or are skipped:\n" + "\n".join(failed + skipped))
    seconds = sum(outcome.seconds for outcome in outcomes.values())
    print(f"without a mutant, {len(tests)} tests pass ({seconds:.0f} s)", flush=True)


def run_all(runner: Runner, chosen: list[Mutant], jobs: int) -> dict[str, dict[str, Outcome]]:
    """Runs the tests of each mutant. Those that change files run one after the other, at the end."""
    results = {}

    def one(mutant: Mutant) -> None:
        outcomes = results[mutant.id] = with_mutant(runner, mutant)
        seconds = sum(outcome.seconds for outcome in outcomes.values())
        state = "killed" if not any(o.passed for o in outcomes.values()) else "SURVIVES"
        print(f"{mutant.id}: {state}, {seconds:.1f} s", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, [mutant for mutant in chosen if mutant.is_compiled]))
    for mutant in chosen:
        if not mutant.is_compiled:
            one(mutant)
    return {mutant.id: results[mutant.id] for mutant in chosen}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ids", nargs="*", help="mutants to run; without any, all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="tests at a time")
    arguments = parser.parse_args()
    every = mutants.load()
    page = (ROOT / mutants.PAGE).read_text(encoding="utf-8")
    if found := list(mutants.problems(every, page, ROOT)):
        sys.exit("\n".join(f"mutants: {problem}" for problem in found))
    if unknown := set(arguments.ids) - {mutant.id for mutant in every}:
        sys.exit(f"mutants: no mutant has the id {', '.join(sorted(unknown))}")
    chosen = [mutant for mutant in every if not arguments.ids or mutant.id in arguments.ids]
    copy_tree(every)
    seed_target()
    begin = time.monotonic()
    runner = Runner(build({test for m in every for test in m.tests if test.partition("::")[0].endswith(".rs")}))
    print(f"compiled {len(every)} mutants in {time.monotonic() - begin:.0f} s", flush=True)
    check_without_mutant(runner, sorted({test for m in chosen for test in m.tests}), arguments.jobs)
    results = run_all(runner, chosen, arguments.jobs)
    rows = []
    for mutant in chosen:
        outcomes = results[mutant.id]
        tests = [
            {"test": test, "failed": not o.passed, "message": o.message, "seconds": round(o.seconds, 2)}
            for test, o in outcomes.items()
        ]
        killed = all(not o.passed for o in outcomes.values())
        rows.append({"id": mutant.id, "row": mutant.row, "killed": killed, "tests": tests})
    (OUT / "mutants.json").write_text(json.dumps(rows, indent=1) + "\n")
    print(f"\n{'mutant':32} {'class':24} {'seconds':>7}  killed by")
    for row in rows:
        seconds = sum(test["seconds"] for test in row["tests"])
        by = ", ".join(test["test"].split("::")[-1] for test in row["tests"] if test["failed"]) or "NO TEST"
        print(f"{row['id']:32} {row['row'][:24]:24} {seconds:7.1f}  {by}")
    survivors = [
        f"{row['id']}: {test['test']} passes without its guard"
        for row in rows
        for test in row["tests"]
        if not test["failed"]
    ]
    print("\n".join(f"mutants: {text}" for text in survivors))
    print(f"{len(rows)} mutants, {sum(row['killed'] for row in rows)} killed; {OUT / 'mutants.json'}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
