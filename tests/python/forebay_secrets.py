"""The secrets of a cluster of `forebay dev`, and a search for them in the logs of its nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

# A shorter text would be found by chance.
MIN_LETTERS = 12
# File with the headers for the collector of traces, in the folder of a cluster that exports them.
COLLECTOR_HEADERS = "collector-headers"
# Files in the folder of a cluster with what left it beside the answers to clients: logs, spans as the
# collector got them, metrics with exemplars.
OUTPUTS = ("*/log", "*.otlp", "*.metrics")
# Keys of trial clusters, which the documentation has.
PUBLISHED = frozenset({"forebaysecret", "forebaysecret2"})
_S3_SECRET = re.compile(r'(?m)^secret = "(.+)"$')


def secrets_of(folder: Path) -> dict[str, str]:
    """Each secret of the cluster in `folder` with a name that a failure may show."""
    found = {}
    for name, path in {"cluster secret": folder / "secret", "token": folder / "token"}.items():
        if path.is_file():
            found[path.read_text().strip()] = name
    for path in folder.glob("*/state/node.key"):
        found[path.read_text().strip()] = f"key of the node {path.parts[-3]}"
    for path in folder.glob("*/forebay.toml"):
        found |= dict.fromkeys(_S3_SECRET.findall(path.read_text()), "key of the S3 API")
    if (headers := folder / COLLECTOR_HEADERS).is_file():
        values = (line.partition(":")[2].split() for line in headers.read_text().splitlines())
        found |= dict.fromkeys((value[-1] for value in values if value), "header for the collector")
    for path in folder.glob("tls/*-key.pem"):
        lines = (line for line in path.read_text().splitlines() if not line.startswith("-"))
        found |= dict.fromkeys(lines, f"TLS key {path.name}")
    return {
        text: name
        for text, name in found.items()
        if len(text) >= MIN_LETTERS and text not in PUBLISHED
    }


def outputs_of(folder: Path) -> list[Path]:
    """The files of the cluster in `folder` that must have no secret."""
    return [path for pattern in OUTPUTS for path in sorted(folder.glob(pattern))]


def first_secret(folder: Path, logs: Iterable[Path]) -> str | None:
    """The first file that has a secret of the cluster in `folder`, with the name of the secret."""
    secrets = secrets_of(folder)
    for log in logs:
        if log.is_file():
            content = log.read_text(errors="replace")
            for text, name in secrets.items():
                if text in content:
                    return f"{log} has the {name}"
    return None
