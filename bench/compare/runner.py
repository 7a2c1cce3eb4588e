"""Tools of the sections: the peers that were found, the scripts of `bench/`, rounds in turns."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import measurement
from compare.row import Contender, Measured, Row, Side
from feeding.reader import cpu_s, memory

BENCH = Path(__file__).resolve().parents[1]


class Failed(Exception):
    """A section that cannot go on; the others can."""


@dataclass
class Run:
    """Options of a run, and where programs are.

    Attributes:
        programs: Programs by the names `forebay`, `load`, `aisnode`, `minio`, `fake-gcs`, `nginx`.
        missing: Peers that are not there: name -> reason.
        out: Folder of the run's files.
    """

    programs: dict[str, str]
    missing: dict[str, str]
    out: Path
    quick: bool = False
    rounds: int = 3
    seconds: float = 1.0

    def program(self, name: str) -> str | None:
        return self.programs.get(name)

    def script(self, name: str, result: str, *arguments: str) -> Any:
        """Runs a script of `bench/` and returns the JSON that it writes as `result`.

        Its tables and messages go to standard error. Options for the programs are added where the
        script has them.
        """
        folder = self.out / name.removesuffix(".py")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        known = (BENCH / name).read_text()
        command = [sys.executable, str(BENCH / name), "--bin", self.programs["forebay"]]
        for option in ("load", "aisnode", "minio", "fake-gcs"):
            if f'"--{option}"' in known and (program := self.program(option)):
                command += [f"--{option}", program]
        command += ["--out", str(folder), *arguments]
        with subprocess.Popen(command, stdout=sys.stderr.fileno()) as child:
            try:
                code = child.wait()
            finally:
                # It then stops its servers and removes their folders.
                child.terminate()
        if code:
            raise Failed(f"bench/{name} exits with code {code}; its message is above")
        return json.loads((folder / result).read_text())


@dataclass
class Way:
    """One contender of a row that is measured here, in turns with the others.

    Attributes:
        run: One round: does the work and returns how many items that were.
        client: The process that reads: its CPU time and memory count, with its children.
        servers: Processes that work for it.
    """

    name: str
    side: Side
    run: Callable[[], float]
    client: int = field(default_factory=os.getpid)
    servers: tuple[int, ...] = ()


def in_turns(row: Row, ways: Iterable[Way], rounds: int, warm_up: bool = True) -> Measured:
    """Measures all ways of a row, round by round, every other round backwards.

    The value is items per second, or seconds of a round if the row's unit is `s`. A peer that fails is
    skipped with its error; our own failure ends the section.
    """
    measured, left = Measured(row), {way.name: way for way in ways}
    samples: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in left}
    order = list(left.values())
    for turn in range(rounds + warm_up):
        for way in order if turn % 2 else order[::-1]:
            if way.name not in left:
                continue
            before = cpu_s(way.client), sum(map(cpu_s, way.servers))
            start = time.perf_counter()
            try:
                items = way.run()
            except Exception as error:
                if way.side == "ours":
                    raise Failed(f"{row.id}: {way.name}: {error}") from error
                measured.skipped[way.name] = last_line(error)
                del left[way.name]
                continue
            took = time.perf_counter() - start
            if turn >= warm_up:
                mine, theirs = cpu_s(way.client), sum(map(cpu_s, way.servers))
                samples[way.name].append((items, took, mine - before[0], theirs - before[1]))
    for way in left.values():
        measured.contenders.append(contender(row, way, samples[way.name]))
    return measured


def contender(row: Row, way: Way, samples: list[tuple[float, float, float, float]]) -> Contender:
    values = [took if row.unit == "s" else items / took for items, took, _, _ in samples]
    items = max(sum(sample[0] for sample in samples), 1e-9)
    return Contender(
        way.name,
        way.side,
        statistics.median(values),
        measurement.spread(values),
        sum(sample[2] for sample in samples) * 1e6 / items,
        sum(sample[3] for sample in samples) * 1e6 / items,
        memory(way.client),
        sum(map(memory, way.servers)) or None,
    )


def last_line(error: object) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__


def skipped(row: Row, reason: str) -> Measured:
    """A row of which nothing is measured."""
    return Measured(row, skipped={"all": reason})


def by_id(rows: Iterable[Row]) -> Mapping[str, Row]:
    return {row.id: row for row in rows}
