"""Names as a tree of folders and files, in the form that fsspec has for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from forebay.bucket import Bucket
from forebay.object import Object
from forebay.types import ObjectProps

__all__ = ["Info", "ObjectFileSystem", "below", "file_info", "folder_info", "has_anything", "level", "props_of"]

Info = dict[str, Any]


class ObjectFileSystem(Protocol):
    """The methods of a file system that its open files call."""

    num_workers: int
    """Requests of one file at the same time."""

    def object_of(self, path: str) -> Object:
        """The object of a path."""

    def unstrip_protocol(self, name: str) -> str:
        """The URI of a path."""


def folder_info(path: str) -> Info:
    return {"name": path, "size": 0, "type": "directory"}


def file_info(path: str, props: ObjectProps) -> Info:
    return {
        "name": path,
        "size": props.size,
        "type": "file",
        "mtime": props.mtime,
        "version": props.version,
        "etag": props.etag,
        "checksum": props.checksum,
        "present": props.present,
    }


def props_of(item: Object, info: Info) -> ObjectProps:
    """The version of the content of an object, from its :func:`file_info`."""
    known = ("size", "version", "etag", "checksum")
    return ObjectProps(item.name, **{key: info[key] for key in known})


def has_anything(bucket: Bucket, folder: str) -> bool:
    """Whether there is anything below a folder, or in the bucket where that is empty."""
    prefix = f"{folder}/" if folder else ""
    return next(bucket.list_objects(prefix, page_size=1), None) is not None


def level(bucket: Bucket, prefix: str) -> Iterator[Info]:
    """Files and folders whose names begin so, none below a further slash."""
    for entry in bucket.list_objects(prefix, recursive=False):
        path = f"{bucket.name}/{entry.name}"
        if entry.is_folder:
            yield folder_info(path.rstrip("/"))
        # An object of this kind is what other clients leave where they make a folder.
        elif not entry.name.endswith("/"):
            yield {"name": path, "size": entry.size, "type": "file"}


def below(bucket: Bucket, folder: str, prefix: str, depth: int | None) -> Iterator[Info]:
    """Files and folders below a folder, those whose names there begin with ``prefix``.

    Args:
        folder: Ends with a slash, or is empty for all of the bucket.
        depth: How many levels; None is all of them, by one listing.
    """
    if depth is not None:
        for one in level(bucket, folder + prefix):
            yield one
            if one["type"] == "directory" and depth > 1:
                inner = one["name"].removeprefix(f"{bucket.name}/")
                yield from below(bucket, f"{inner}/", "", depth - 1)
        return
    emitted: set[str] = set()
    for name, size in bucket.list_snapshot(folder + prefix):
        parent = name.rpartition("/")[0]
        while len(parent) > len(folder) and parent not in emitted:
            emitted.add(parent)
            yield folder_info(f"{bucket.name}/{parent}")
            parent = parent.rpartition("/")[0]
        if not name.endswith("/"):
            yield {"name": f"{bucket.name}/{name}", "size": size, "type": "file"}
