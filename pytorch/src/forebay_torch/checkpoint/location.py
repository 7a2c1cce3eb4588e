"""Locations of checkpoints: resolves paths, as users and frameworks write them, into objects."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TypeAlias

from forebay import Bucket, Client, Object

__all__ = ["Location", "StrPath", "locate", "uri_of"]

StrPath: TypeAlias = str | os.PathLike[str]

# A pathlib.Path made of a URI has lost one slash of it.
_URI = re.compile(r"([a-z][a-z0-9]*):/{1,2}(?=[^/])(.*)", re.DOTALL)
_SCHEMES = {"gcs": "gs", "forebay": "ais"}


@dataclass(frozen=True, slots=True)
class Location:
    """A name, or the begin of names, in a bucket."""

    bucket: Bucket
    name: str

    @property
    def uri(self) -> str:
        """``scheme://bucket/name``."""
        return f"{self.bucket.uri}/{self.name}" if self.name else self.bucket.uri

    def object(self) -> Object:
        """The object of this name.

        Raises:
            ValueError: There is no name.
        """
        if not self.name or self.name.endswith("/"):
            raise ValueError(f"{self.uri!r} names no object; it needs a name behind its last slash")
        return self.bucket.object(self.name)

    def under(self) -> str:
        """How the names begin that lie in the folder of this name."""
        return f"{self.name.rstrip('/')}/" if self.name.strip("/") else ""


def uri_of(path: StrPath) -> str | None:
    """The path as a URI with both of its slashes; None for a bare name.

    Raises:
        TypeError: It is no path.
    """
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(f"a path is a str or a pathlib.Path, not {type(path).__name__}")
    found = _URI.fullmatch(text)
    if found is None:
        return None
    scheme, rest = found.groups()
    return f"{_SCHEMES.get(scheme, scheme)}://{rest}"


def locate(path: StrPath, client: Client, base: Location | None = None) -> Location:
    """The place that a path stands for.

    Args:
        path: ``ais://``, ``fb://``, ``forebay://``, ``s3://``, ``gs://``, ``gcs://`` or ``az://``,
            then bucket and name; or a name under ``base``. A ``Path`` made of a URI is taken as that URI.
        base: Where bare names are.

    Raises:
        ValueError: There is no such kind of bucket, or a bare name and no ``base``.
    """
    uri = uri_of(path)
    if uri is not None:
        bucket, name = client.bucket_of(uri)
        return Location(bucket, name)
    if base is None:
        raise ValueError(
            f"{os.fspath(path)!r} is no URI such as s3://bucket/name, and no bucket was named"
        )
    return Location(base.bucket, base.under() + os.fspath(path))
