"""The endpoint of a client's cluster if none is given, and the settings of a local server.

In this order: the argument ``endpoint``, ``FOREBAY_ENDPOINT``, ``AIS_ENDPOINT``, the endpoint of the
profile ``FOREBAY_PROFILE``, ``endpoint`` in the configuration file; after that a server of this
user's own (:mod:`forebay.local`). The file is
``$XDG_CONFIG_HOME/forebay/config.toml``, by default under ``~/.config``, or what
``FOREBAY_CONFIG`` names::

    endpoint = "http://10.0.0.7:7400"
    ca_file = "/etc/forebay/ca.pem"     # CAs for endpoints with https://
    notices = true          # lines on stderr about what a client does by itself

    [profile.lab]           # a further cluster: FOREBAY_PROFILE=lab
    endpoint = "https://lab.example.com:7400"
    ca_file = "/etc/forebay/lab.pem"    # absent: the one above

    [local]                 # the server that is started where there is no endpoint
    enabled = true
    size = "20GiB"          # most bytes of disk that it uses
    idle_stop = "15m"       # it stops when nobody has used it for so long
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "LocalSettings",
    "config_path",
    "find_ca_file",
    "find_endpoint",
    "local_settings",
    "notices_enabled",
]

_OFF = frozenset({"0", "off", "no", "false"})


@dataclass(frozen=True)
class LocalSettings:
    """How the server of this user and machine is to be.

    Attributes:
        enabled: Whether one may be started at all; ``FOREBAY_LOCAL`` (``off``) comes first.
        size: Most bytes of disk, such as ``20GiB``; ``FOREBAY_LOCAL_SIZE``. None is the server's
            own rule: a tenth of the file system or 20 GiB, the smaller.
        idle_stop: How long it stays without a user, such as ``15m``; ``FOREBAY_LOCAL_IDLE_STOP``.
    """

    enabled: bool = True
    size: str | None = None
    idle_stop: str = "15m"


def config_path(environment: Mapping[str, str] = os.environ) -> Path:
    """The configuration file, whether it exists or not."""
    if named := environment.get("FOREBAY_CONFIG"):
        return Path(named)
    folder = environment.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "forebay" / "config.toml"


def find_endpoint(
    endpoint: str | None = None, environment: Mapping[str, str] = os.environ
) -> str | None:
    """The endpoint that somebody set, without a slash at its end; None when nobody did.

    Raises:
        ValueError: The configuration file cannot be understood.
    """
    for given in (endpoint, environment.get("FOREBAY_ENDPOINT"), environment.get("AIS_ENDPOINT")):
        if given and given.strip():
            return given.strip().rstrip("/")
    return _access(environment)["endpoint"]


def find_ca_file(
    ca_file: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] = os.environ,
    *,
    endpoint: str | None = None,
) -> str | None:
    """The file with CAs that somebody set: the argument, ``FOREBAY_CA_FILE``, ``AIS_CLIENT_CA``,
    ``ca_file`` of the profile whose endpoint is used, ``ca_file`` in the configuration file; None
    when nobody did. ``endpoint`` is the argument of that name, which precedes a profile.

    Raises:
        ValueError: The configuration file cannot be understood.
    """
    if ca_file is not None:
        return os.fspath(ca_file)
    for name in ("FOREBAY_CA_FILE", "AIS_CLIENT_CA"):
        if (given := environment.get(name, "").strip()):
            return given
    named = (endpoint, environment.get("FOREBAY_ENDPOINT"), environment.get("AIS_ENDPOINT"))
    is_named = any(given and given.strip() for given in named)
    return _access(environment, use_profile=not is_named)["ca_file"]


def notices_enabled(
    notices: bool | None = None, environment: Mapping[str, str] = os.environ
) -> bool:
    """Whether notices go to stderr: the argument, ``FOREBAY_NOTICES`` (``off``), ``notices`` in the file,
    in this order; by default they do. Warnings and errors are no notices.

    Raises:
        ValueError: The configuration file cannot be understood.
    """
    if notices is not None:
        return notices
    if switch := environment.get("FOREBAY_NOTICES"):
        return switch.strip().lower() not in _OFF
    path = config_path(environment)
    given = _read(path).get("notices", True)
    if not isinstance(given, bool):
        raise ValueError(f"{path}: notices must be true or false, not {given!r}")
    return given


def local_settings(environment: Mapping[str, str] = os.environ) -> LocalSettings:
    """The settings of the local server: those of the environment before those of the file.

    Raises:
        ValueError: The configuration file cannot be understood.
    """
    path = config_path(environment)
    table = _read(path).get("local", {})
    if not isinstance(table, dict):
        raise ValueError(f"{path}: local must be a table")
    kinds: dict[str, type] = {"enabled": bool, "size": str, "idle_stop": str}
    for key, value in table.items():
        if key not in kinds:
            raise ValueError(f"{path}: unknown setting local.{key}; known are {', '.join(kinds)}")
        if not isinstance(value, kinds[key]):
            raise ValueError(f"{path}: local.{key} must be a {kinds[key].__name__}")
    settings = dict(table)
    if switch := environment.get("FOREBAY_LOCAL"):
        settings["enabled"] = switch.strip().lower() not in _OFF
    for key in ("size", "idle_stop"):
        if value := environment.get(f"FOREBAY_LOCAL_{key.upper()}"):
            settings[key] = value
    return LocalSettings(**settings)


def _access(environment: Mapping[str, str], *, use_profile: bool = True) -> dict[str, str | None]:
    """``endpoint`` and ``ca_file`` of the profile that the environment names, or of the file."""
    path = config_path(environment)
    table = _read(path)
    access = {
        "endpoint": _text(path, table, "endpoint", "a URL"),
        "ca_file": _text(path, table, "ca_file", "a path"),
    }
    name = environment.get("FOREBAY_PROFILE", "").strip()
    if not name or not use_profile:
        return access
    profiles = table.get("profile", {})
    if not isinstance(profiles, dict) or not all(isinstance(p, dict) for p in profiles.values()):
        raise ValueError(f"{path}: profile must be a table of profiles")
    if name not in profiles:
        known = f"the profiles are {', '.join(profiles)}" if profiles else "it has none"
        raise ValueError(f'{path}: there is no profile "{name}"; {known}')
    of_profile = {f"profile.{name}.{key}": value for key, value in profiles[name].items()}
    endpoint = _text(path, of_profile, f"profile.{name}.endpoint", "a URL")
    if endpoint is None:
        raise ValueError(f"{path}: profile.{name} has no endpoint")
    ca_file = _text(path, of_profile, f"profile.{name}.ca_file", "a path")
    return {"endpoint": endpoint, "ca_file": ca_file or access["ca_file"]}


def _text(path: Path, table: Mapping[str, Any], key: str, form: str) -> str | None:
    """The text of a setting, without a slash at its end if it is a URL; None if it is not set."""
    given = table.get(key)
    if given is None:
        return None
    if not isinstance(given, str) or not given.strip():
        raise ValueError(f"{path}: {key} must be {form}, not {given!r}")
    return given.strip().rstrip("/") if form == "a URL" else given.strip()


def _read(path: Path) -> dict[str, Any]:
    """The file as a dictionary; one that is not there is empty."""
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    # Only here: nearly nobody has the file, and everybody imports this module.
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from None
