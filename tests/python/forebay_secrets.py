"""The secrets of a cluster of `forebay dev`, and a search for them in the logs of its nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

# A shorter text would be found by chance.
MIN_LETTERS = 12
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
    for path in folder.glob("tls/*-key.pem"):
        lines = (line for line in path.read_text().splitlines() if not line.startswith("-"))
        found |= dict.fromkeys(lines, f"TLS key {path.name}")
    return {
        text: name
        for text, name in found.items()
        if len(text) >= MIN_LETTERS and text not in PUBLISHED
    }


def first_secret(folder: Path, logs: Iterable[Path]) -> str | None:
    """The first log that has a secret of the cluster in `folder`, with the name of the secret."""
    secrets = secrets_of(folder)
    for log in logs:
        if log.is_file():
            content = log.read_text(errors="replace")
            for text, name in secrets.items():
                if text in content:
                    return f"{log} has the {name}"
    return None
