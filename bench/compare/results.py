"""The JSON of a run: one document from which all pages and plots are made."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from compare.row import Json, Row, ahead, level, over_best

SCHEMA = 1
PACKAGES = ("torch", "aistore", "s3torchconnector", "s3fs", "boto3", "webdataset")
PACKAGES += ("gcs-torch-dataflux", "gcsfs", "google-cloud-storage")


def new(parameters: Json, program: Path, versions: dict[str, str], missing: dict[str, str]) -> Json:
    """A document without sections."""
    return {
        "schema": SCHEMA,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "parameters": parameters,
        "profile": profile(program),
        "machine": machine(),
        "versions": versions,
        "missing": missing,
        "sections": {},
    }


def profile(program: Path) -> str:
    """The build profile that was measured, by the folder of the program."""
    folder = program.resolve().parent.name
    return folder if folder in ("dist", "release", "debug") else "unknown"


def machine() -> Json:
    """The machine without its names."""
    memory = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    cpu = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": cpu[1] if cpu else platform.machine(),
        "memory_gib": round(int(memory[1]) / (1 << 20)) if memory else None,
        "kernel": ".".join(platform.release().split(".")[:2]),
        "python": platform.python_version(),
    }


def package_versions() -> dict[str, str]:
    """Versions of the peers' Python packages that are installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def program_version(command: list[str], pattern: str = r"\d+[\w.:-]*") -> str:
    """The version that a program prints, or `unknown`."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    found = re.search(pattern, done.stdout + done.stderr)
    return found[0] if found else "unknown"


def load(path: Path) -> Json:
    """Reads a document; ValueError says what is wrong with it."""
    try:
        document = json.loads(path.read_text())
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: no JSON: {error}") from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise ValueError(f"{path}: schema {schema}, and this program reads {SCHEMA}: run it again")
    return document


def save(path: Path, document: Json) -> None:
    """Writes a document whole or not at all; figures have five digits, which is more than they mean."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(rounded(document), indent=1, ensure_ascii=False) + "\n")
    new.rename(path)


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list | tuple) else value


def rows(document: Json) -> list[Json]:
    """All rows of all sections."""
    return [row for section in document["sections"].values() for row in section["rows"]]


def headlines(document: Json) -> list[Json]:
    """The rows of the README."""
    return [row for row in rows(document) if row["headline"] and row["contenders"]]


EXPLAINED = ("title", "seed", "scale", "reason", "headline")
"""Texts of a row beside its figures. A reason is often found after the run that needs it."""


def explained(document: Json, defined: Iterable[Row]) -> Json:
    """The document with the texts of today; rows that are no longer defined keep theirs."""
    today = {row.id: {key: value for key, value in asdict(row).items() if key in EXPLAINED} for row in defined}
    sections = {
        name: section | {"rows": [row | today.get(row["id"], {}) for row in section["rows"]]}
        for name, section in document["sections"].items()
    }
    return document | {"sections": sections}


def disagreements(first: Json, second: Json) -> list[str]:
    """A line for each row in which two runs have another side ahead, or that only one of them has.

    A run in which a row is level does not show who is ahead there, so that it contradicts no other run:
    see `undecided`.
    """
    lines = []
    for row_id, one, other in pairs(first, second):
        if one is None or other is None:
            lines.append(f"{row_id}: only the {'second' if one is None else 'first'} run has it")
        elif ahead(one) != ahead(other) and not level(one) and not level(other):
            lines.append(f"{row_id}: {in_words(one, other)}")
    return lines


def undecided(first: Json, second: Json) -> list[str]:
    """A line for each row that is level in one of two runs, or in both: rounds differ as much as the sides do."""
    return [
        f"{row_id}: {in_words(one, other)}"
        for row_id, one, other in pairs(first, second)
        if one and other and (level(one) or level(other))
    ]


def pairs(first: Json, second: Json) -> Iterator[tuple[str, Json | None, Json | None]]:
    """Each row of two runs by its id, with None for a run that does not have it; rows of the first come first."""
    ones, others = ({row["id"]: row for row in rows(document)} for document in (first, second))
    for row_id in dict.fromkeys([*ones, *others]):
        yield row_id, ones.get(row_id), others.get(row_id)


def in_words(one: Json, other: Json) -> str:
    """The side that is ahead in each of two runs of a row."""
    said = (f"{ahead(row) or 'nobody'} ahead{by(row)}{', level' if level(row) else ''}" for row in (one, other))
    return "{} in the first run, {} in the second".format(*said)


def by(row: Json) -> str:
    """By how much our side or the best peer is ahead."""
    of = over_best(row)
    return f" by {max(of, 1 / of):.2f} ×" if of else ""
