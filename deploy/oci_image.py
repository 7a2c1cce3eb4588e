#!/usr/bin/env python3
"""Writes the container image as one archive, without docker or buildah.

    oci_image.py --program FILE [--name localhost/forebay] ARCHIVE

This file is the one place that says what is in the image: one static program, certificates of
authorities, licence texts, and a user that is not root. No shell, no libraries, no package manager.

The archive is an OCI image layout and an archive of `docker save` at once: `docker load`,
`podman load`, `ctr images import`, `kind load image-archive` and `skopeo copy oci-archive:…` take it.
The same input gives the same bytes. Needs only the standard library.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import platform
import sys
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

USER = 65532
STATE_FOLDER = "var/lib/forebay"
PORTS = (7400, 7410)
LICENSES_FOLDER = "usr/share/doc/forebay"
TITLE = "Forebay"
DESCRIPTION = "A cache cluster that feeds training loops from cloud buckets"
PASSWD = f"root:x:0:0:root:/:/\nforebay:x:{USER}:{USER}:forebay:/{STATE_FOLDER}:/\n"
GROUP = f"root:x:0:\nforebay:x:{USER}:\n"
# The C library is linked in and loads no modules.
NSSWITCH = "hosts: files dns\n"
# Names of processors in images, where they differ from those of Linux.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# The level of zlib that is compared nowhere: 6 takes a third of the time of 9 for 1 % more bytes.
GZIP_LEVEL = 6


@dataclass(frozen=True)
class Entry:
    """A file of the image, or a folder if it has no content.

    Attributes:
        path: Without a slash in front.
        owner: Number of the user, and of the group.
    """

    path: str
    content: bytes | None = None
    mode: int = 0o644
    owner: int = 0


@dataclass(frozen=True)
class Release:
    """Metadata of the release that the image contains.

    Attributes:
        name: The image's name without a tag.
        created: Seconds since 1970: that of the commit.
        revision: The commit.
        processor: As Linux names it, x86_64 or aarch64.
    """

    name: str
    version: str
    revision: str
    created: int
    processor: str

    @property
    def timestamp(self) -> str:
        """The time of creation as RFC 3339 has it."""
        return datetime.fromtimestamp(self.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def entries(program: bytes, certificates: bytes, licenses: dict[str, bytes]) -> list[Entry]:
    """Everything that is in the image, folders first."""
    files = [
        Entry("etc/group", GROUP.encode()),
        Entry("etc/nsswitch.conf", NSSWITCH.encode()),
        Entry("etc/passwd", PASSWD.encode()),
        Entry("etc/ssl/certs/ca-certificates.crt", certificates),
        Entry("usr/local/bin/forebay", program, 0o755),
        *(Entry(f"{LICENSES_FOLDER}/{name}", text) for name, text in sorted(licenses.items())),
    ]
    folders = {str(parent) for f in files for parent in Path(f.path).parents} - {"."}
    folders |= {str(parent) for parent in Path(STATE_FOLDER).parents} - {"."}
    return [
        *(Entry(folder, mode=0o755) for folder in sorted(folders)),
        # A new named volume that is mounted here takes over the owner.
        Entry(STATE_FOLDER, mode=0o755, owner=USER),
        *files,
    ]


def archive(entries: Iterable[Entry], created: int) -> bytes:
    """A tar archive of these entries in this order, all of one time."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for entry in entries:
            info = tarfile.TarInfo(entry.path)
            info.mtime = created
            info.mode = entry.mode
            info.uid = info.gid = entry.owner
            if entry.content is None:
                info.type = tarfile.DIRTYPE
            else:
                info.size = len(entry.content)
            tar.addfile(info, None if entry.content is None else io.BytesIO(entry.content))
    return buffer.getvalue()


def configuration(release: Release, layer_digest: str) -> dict[str, Any]:
    """How the image is run, and its labels."""
    return {
        "created": release.timestamp,
        "architecture": ARCHITECTURES[release.processor],
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "ExposedPorts": {f"{port}/tcp": {} for port in PORTS},
            "Env": ["PATH=/usr/local/bin"],
            "Entrypoint": ["/usr/local/bin/forebay"],
            "Cmd": ["--help"],
            "WorkingDir": f"/{STATE_FOLDER}",
            "Labels": {
                "org.opencontainers.image.title": TITLE,
                "org.opencontainers.image.description": DESCRIPTION,
                "org.opencontainers.image.licenses": "Apache-2.0",
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.revision": release.revision,
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
        "history": [{"created": release.timestamp, "created_by": "deploy/oci_image.py"}],
    }


def image(release: Release, content: Iterable[Entry]) -> bytes:
    """The archive of the image."""
    layer = archive(content, release.created)
    blobs: list[Entry] = []

    def add_blob(data: bytes, media_type: str) -> dict[str, Any]:
        """Keeps a blob under its digest; returns what refers to it."""
        digest = hashlib.sha256(data).hexdigest()
        blobs.append(Entry(f"blobs/sha256/{digest}", data))
        oci = f"application/vnd.oci.image.{media_type}"
        return {"mediaType": oci, "digest": f"sha256:{digest}", "size": len(data)}

    packed = add_blob(gzip.compress(layer, GZIP_LEVEL, mtime=0), "layer.v1.tar+gzip")
    diff_id = f"sha256:{hashlib.sha256(layer).hexdigest()}"
    config = add_blob(_json(configuration(release, diff_id)), "config.v1+json")
    manifest = add_blob(
        _json(
            {
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": config,
                "layers": [packed],
            }
        ),
        "manifest.v1+json",
    )
    full_name = f"{release.name}:{release.version}"
    manifest["platform"] = {"architecture": ARCHITECTURES[release.processor], "os": "linux"}
    manifest["annotations"] = {
        "org.opencontainers.image.ref.name": release.version,
        "io.containerd.image.name": full_name,
    }
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest],
    }

    def path_of(blob: dict[str, Any]) -> str:
        return f"blobs/sha256/{blob['digest'].removeprefix('sha256:')}"

    for_docker = [{"Config": path_of(config), "RepoTags": [full_name], "Layers": [path_of(packed)]}]
    return archive(
        [
            Entry("blobs", mode=0o755),
            Entry("blobs/sha256", mode=0o755),
            *sorted(blobs, key=lambda blob: blob.path),
            Entry("index.json", _json(index)),
            Entry("manifest.json", _json(for_docker)),
            Entry("oci-layout", _json({"imageLayoutVersion": "1.0.0"})),
        ],
        release.created,
    )


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--program", type=Path, required=True, help="the static program")
    parser.add_argument(
        "--name", default="localhost/forebay", help="the image's name without a tag"
    )
    parser.add_argument("--version", required=True)
    parser.add_argument("--revision", default="unknown", help="the commit")
    parser.add_argument("--created", type=int, default=0, help="seconds since 1970")
    parser.add_argument("--processor", default=platform.machine(), choices=ARCHITECTURES)
    parser.add_argument("--certificates", type=Path, required=True, help="a bundle in PEM")
    parser.add_argument(
        "--license", type=Path, action="append", default=[], help="a text to put in"
    )
    parser.add_argument("archive", type=Path)
    given = parser.parse_args()
    release = Release(given.name, given.version, given.revision, given.created, given.processor)
    licenses = {file.name: file.read_bytes() for file in given.license}
    content = entries(given.program.read_bytes(), given.certificates.read_bytes(), licenses)
    given.archive.write_bytes(image(release, content))
    return 0


if __name__ == "__main__":
    sys.exit(main())
