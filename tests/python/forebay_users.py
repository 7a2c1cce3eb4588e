"""A cluster with users and TLS for the tests of clients, and its users with their tokens and keys."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay_cluster import Cluster, binary
from forebay_s3 import REGION

ADMIN = "root"
ADMIN_PASSWORD = "planted-password-of-root"
COMMAND_DEADLINE_S = 60.0
# Variables that would name another user, cluster or CA than those of a test.
FOREIGN_VARIABLES = (
    "AIS_AUTHN_TOKEN",
    "AIS_AUTHN_TOKEN_FILE",
    "AIS_CLIENT_CA",
    "AIS_ENDPOINT",
    "AWS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "FOREBAY_CA_FILE",
    "FOREBAY_ENDPOINT",
    "FOREBAY_TOKEN",
    "FOREBAY_TOKEN_FILE",
    "REQUESTS_CA_BUNDLE",
)


@dataclass
class UsersCluster:
    """A cluster of `forebay dev --tls` with the administrator `root`, and what `dev.json` has of it."""

    cluster: Cluster
    folder: Path

    @property
    def endpoint(self) -> str:
        return self.cluster.endpoint

    @property
    def s3_url(self) -> str:
        return str(self.cluster.info["s3"])

    @property
    def ca(self) -> str | None:
        """File with the CA; None without TLS."""
        found: str | None = self.cluster.info.get("ca")
        return found

    @property
    def admin_token(self) -> str:
        return str(self.cluster.info["token"])

    def environment(self, token: str | None = None) -> dict[str, str]:
        """The environment of a process whose clients have this token, and no other settings."""
        clean = {name: value for name, value in os.environ.items() if name not in FOREIGN_VARIABLES}
        clean |= {"FOREBAY_ENDPOINT": self.endpoint, "FOREBAY_LOCAL": "off"}
        if self.ca is not None:
            clean |= {"FOREBAY_CA_FILE": self.ca, "AWS_CA_BUNDLE": self.ca}
        clean |= {"HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder / "config")}
        return clean if token is None else {**clean, "FOREBAY_TOKEN": token}

    def s3_environment(self, key: tuple[str, str]) -> dict[str, str]:
        """The environment of a process whose S3 clients have this key, and the CA of the cluster."""
        return self.environment() | {
            "AWS_ENDPOINT_URL": self.s3_url,
            "AWS_ACCESS_KEY_ID": key[0],
            "AWS_SECRET_ACCESS_KEY": key[1],
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def command(
        self, *words: str, token: str | None = None, env: Mapping[str, str] | None = None, text: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Runs `forebay` with these words, as the user of a token; `text` is its standard input."""
        return subprocess.run(
            [str(binary()), *words],
            env={**self.environment(token), **(env or {})},
            input=text,
            capture_output=True,
            text=True,
            timeout=COMMAND_DEADLINE_S,
        )

    def as_admin(self, *words: str, text: str = "") -> str:
        """The output of a command of the administrator, which succeeds."""
        done = self.command(*words, token=self.admin_token, text=text)
        assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def add_user(self, name: str, *roles: str, password: str = "") -> None:
        """Adds a user with these roles on everything."""
        words = ["auth", "user", "add", name]
        for role in roles:
            words += ["--role", role]
        if password:
            words += ["--password-file", "-"]
        self.as_admin(*words, text=password)

    def token_of(self, user: str) -> str:
        """A new token of a user."""
        return self.as_admin("auth", "token", "create", "--user", user).strip()

    def key_of(self, user: str) -> tuple[str, str]:
        """A new access key of a user, and its secret."""
        made: dict[str, Any] = json.loads(self.as_admin("auth", "key", "create", "--user", user, "-o", "json"))
        return made["access"], made["secret"]


@contextlib.contextmanager
def users_cluster(folder: Path, options: Sequence[str]) -> Iterator[UsersCluster]:
    """A cluster with its data in `folder`, and a user for each role; it ends with the block."""
    options = [*options, "--config", str(configuration(folder))]
    running = Cluster.start(folder, targets=2, options=options)
    try:
        users = UsersCluster(running, folder)
        for role in ("writer", "reader"):
            users.add_user(role, role)
        users.add_user("stranger")
        yield users
    finally:
        running.stop()
        shutil.rmtree(folder, ignore_errors=True)


def configuration(folder: Path) -> Path:
    """Writes the settings of a cluster with the administrator; returns their file."""
    password = folder / "password"
    password.write_text(f"{ADMIN_PASSWORD}\n")
    password.chmod(0o600)
    settings = folder / "settings.toml"
    settings.write_text(f'[auth]\nadmin = "{ADMIN}"\nadmin_password_file = "{password}"\n')
    return settings
