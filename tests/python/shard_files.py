"""Archives made by Python, for tests: what users' own tools write."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
from collections.abc import Iterable

import xxhash

__all__ = ["FORMATS", "Members", "pack", "tar"]

Members = Iterable[tuple[str, bytes]]

# Ending of the name -> how forebay calls the format.
FORMATS = {
    ".tar": "tar",
    ".tgz": "tar-gz",
    ".tar.gz": "tar-gz",
    ".tar.lz4": "tar-lz4",
    ".tar.zst": "tar-zst",
    ".zip": "zip",
}


def tar(members: Members, format: int = tarfile.PAX_FORMAT, folders: bool = False) -> bytes:
    """A TAR; with ``folders`` each member's folder is an entry of its own before it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for name, data in members:
            if folders and "/" in name:
                folder = tarfile.TarInfo(name.rsplit("/", 1)[0])
                folder.type = tarfile.DIRTYPE
                archive.addfile(folder)
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def pack(members: Members, ending: str) -> bytes:
    """An archive of the format that names with this ending have."""
    if ending == ".zip":
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in members:
                archive.writestr(name, data)
        return out.getvalue()
    plain = tar(members)
    match FORMATS[ending]:
        case "tar-gz":
            return gzip.compress(plain)
        case "tar-lz4":
            return lz4_frame(plain)
        case "tar-zst":
            return zstd_frame(plain)
    return plain


def lz4_frame(data: bytes) -> bytes:
    """A frame of LZ4 whose blocks are stored."""
    head = bytes([0x60, 0x70])
    check = (xxhash.xxh32(head).intdigest() >> 8) & 0xFF
    blocks = [data[start : start + (4 << 20)] for start in range(0, len(data), 4 << 20)]
    stored = b"".join(struct.pack("<I", len(b) | 1 << 31) + b for b in blocks)
    return struct.pack("<I", 0x184D2204) + head + bytes([check]) + stored + bytes(4)


def zstd_frame(data: bytes) -> bytes:
    """A frame of Zstandard whose blocks are stored."""
    size = 128 << 10
    blocks = [data[start : start + size] for start in range(0, len(data), size)] or [b""]
    stored = b"".join(
        struct.pack("<I", len(b) << 3 | (number == len(blocks) - 1))[:3] + b
        for number, b in enumerate(blocks)
    )
    return struct.pack("<IBI", 0xFD2FB528, 0xA0, len(data)) + stored
