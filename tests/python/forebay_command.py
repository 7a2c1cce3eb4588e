"""The command `forebay` on a running cluster, as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay_cluster import Cluster, binary


@dataclass
class Answer:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as one JSON document."""
        return json.loads(self.out)


@dataclass
class Command:
    """Runs `forebay` at this endpoint in a folder."""

    endpoint: str
    folder: Path

    @classmethod
    def of(cls, cluster: Cluster, folder: Path) -> Command:
        return cls(cluster.endpoint, folder)

    def __call__(
        self, *args: str, text: str | None = None, env: Mapping[str, str] | None = None
    ) -> Answer:
        """Runs a command to its end, whatever its exit code is."""
        own = {k: v for k, v in os.environ.items() if not k.startswith(("FOREBAY_", "AWS_"))}
        done = subprocess.run(
            [str(binary()), *args],
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={**own, "FOREBAY_ENDPOINT": self.endpoint, **(env or {})},
            timeout=120,
            check=False,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def ok(self, *args: str, text: str | None = None) -> str:
        """Runs a command that must succeed; returns its standard output."""
        answer = self(*args, text=text)
        assert answer.code == 0, (args, answer)
        return answer.out

    def names(self, uri: str) -> list[str]:
        """Names of the objects of a bucket or prefix."""
        return self.ok("ls", uri, "-o", "name").split()
