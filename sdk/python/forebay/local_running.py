"""The description of a server of this user's own: its endpoint, its process, and the token and the key by
which clients of this user are served."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Running", "read_description"]


@dataclass(frozen=True)
class Running:
    """A server that runs.

    Attributes:
        endpoint: Its URL.
        pid: Its process.
        was_started: Whether it was started now, rather than found.
        token: The token that its clients send; None if it needs none.
        token_file: The file that has the token alone.
        s3_key: Access key and secret key for clients of the S3 API; None if it needs none.
    """

    endpoint: str
    pid: int
    was_started: bool = field(default=False, compare=False)
    token: str | None = field(default=None, compare=False, repr=False)
    token_file: str | None = field(default=None, compare=False)
    s3_key: tuple[str, str] | None = field(default=None, compare=False, repr=False)

    def environment(self) -> dict[str, str]:
        """The variables by which other programs find it: Forebay's clients, AIStore's, and those of S3."""
        found = {"FOREBAY_ENDPOINT": self.endpoint, "AIS_ENDPOINT": self.endpoint}
        found["AWS_ENDPOINT_URL_S3"] = f"{self.endpoint}/s3"
        # Forebay's clients find the token of this server by themselves, and only for this server.
        if self.token is not None:
            found["AIS_AUTHN_TOKEN"] = self.token
        if self.s3_key is not None:
            found["AWS_ACCESS_KEY_ID"], found["AWS_SECRET_ACCESS_KEY"] = self.s3_key
        return found

    def exports(self) -> str:
        """``environment()`` as lines for a shell."""
        lines = (f"export {name}={shlex.quote(value)}" for name, value in self.environment().items())
        return "\n".join(lines)


def read_description(path: Path) -> Running | None:
    """Reads the description that the server wrote when it was ready; the server may have ended since. None
    without one, and for one that another user of the machine wrote."""
    try:
        with open(path) as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                return None
            found = json.load(file)
        keys = found.get("s3_keys") or [None]
        return Running(
            str(found["endpoint"]),
            int(found["pid"]),
            token=_text(found.get("token")),
            token_file=_text(found.get("token_file")),
            s3_key=_key(keys[-1]),
        )
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _key(value: object) -> tuple[str, str] | None:
    if not isinstance(value, Mapping):
        return None
    return str(value["access"]), str(value["secret"])
