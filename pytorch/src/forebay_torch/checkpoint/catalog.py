"""The checkpoints under a prefix: which are whole, which is the newest, which can go."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from forebay import Bucket
from forebay_torch.checkpoint.location import Location

__all__ = ["METADATA", "SUFFIXES", "Entry", "catalog", "remove_all"]

# What torch.distributed.checkpoint writes last of a checkpoint, and how its parts are called.
METADATA = ".metadata"
_PART = ".distcp"
SUFFIXES = (".ckpt", ".pt", ".pth", ".bin", ".safetensors")
_NUMBER = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class Entry:
    """One checkpoint.

    Attributes:
        name: That of its object, or of its folder without a slash at the end.
        objects: Names of all that it consists of.
        is_whole: Whether all of it was written.
    """

    name: str
    objects: tuple[str, ...]
    is_whole: bool = True
    is_folder: bool = False

    @property
    def order(self) -> list[Any]:
        """The key to sort by: the parts of the name, numbers as numbers."""
        stem = self.name
        for suffix in SUFFIXES:
            stem = stem.removesuffix(suffix)
        pieces = _NUMBER.split(stem)
        return [(piece, 0) if i % 2 == 0 else ("", int(piece)) for i, piece in enumerate(pieces)]


def catalog(place: Location) -> list[Entry]:
    """The checkpoints whose names begin so, oldest first.

    One is an object whose name ends in one of SUFFIXES, or a folder that
    torch.distributed.checkpoint wrote. The order is that of the names, in which numbers count as
    numbers: ``step=9`` comes before ``step=10``.
    """
    names = list(place.bucket.list_snapshot(place.name).names())
    folders = {name.rpartition("/")[0] for name in names if name.rpartition("/")[2] == METADATA}
    parts: dict[str, list[str]] = {}
    entries = []
    for name in names:
        folder = _folder_of(name, folders)
        if folder is not None:
            parts.setdefault(folder, []).append(name)
        elif name.endswith(_PART):
            parts.setdefault(name.rpartition("/")[0], []).append(name)
        elif name.endswith(SUFFIXES):
            entries.append(Entry(name, (name,)))
    for folder, objects in parts.items():
        entries.append(Entry(folder, tuple(objects), folder in folders, is_folder=True))
    return sorted(entries, key=lambda entry: entry.order)


def _folder_of(name: str, folders: set[str]) -> str | None:
    """The innermost of these folders that an object lies in."""
    folder = name
    while "/" in folder:
        folder = folder.rpartition("/")[0]
        if folder in folders:
            return folder
    return "" if "" in folders else None


def remove_all(bucket: Bucket, names: Iterable[str]) -> None:
    """Deletes these objects; what says that a checkpoint is whole goes first."""
    for name in sorted(names, key=lambda name: name.rpartition("/")[2] != METADATA):
        bucket.object(name).delete(missing_ok=True)
