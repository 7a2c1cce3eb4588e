"""The container image of the chart, unpacked as a container runtime does it."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Image:
    """Attributes:
    root: The unpacked folder.
    entrypoint: First words of each command, unless the container has a command.
    arguments: The words after it, unless the container has a command or arguments.
    env: Variables of each process.
    user, group: Of each process, unless the manifest has others.
    folder: The working folder of each process, unless the container has another.
    is_static: Whether the image is as it is released. If not, its program needs shared libraries, which were added
        from this machine.
    """

    root: Path
    entrypoint: list[str]
    arguments: list[str]
    env: dict[str, str]
    user: int
    group: int
    folder: str
    is_static: bool


def unpack(program: Path, folder: Path) -> Image:
    """Packs a program as an image (deploy/build-image.sh), and unpacks it below `folder`."""
    libraries = _libraries(program)
    archive = folder / "image.tar"
    license_text = REPOSITORY / "LICENSE"
    if libraries:
        packer = [sys.executable, f"{REPOSITORY}/deploy/oci_image.py", "--program", str(program)]
        packer += ["--name", "localhost/forebay", "--version", "0"]
        packer += ["--certificates", "/etc/ssl/certs/ca-certificates.crt", "--license", str(license_text)]
        environment = dict(os.environ)
    else:
        packer = [f"{REPOSITORY}/deploy/build-image.sh"]
        environment = {**os.environ, "BINARY": str(program), "THIRD_PARTY": str(license_text)}
    done = subprocess.run([*packer, str(archive)], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{packer[0]}: {done.stderr}")
    root = folder / "root"
    root.mkdir()
    config = _unpack_layers(archive, root)
    archive.unlink()
    for library in libraries:
        place = root / str(library).lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, place)
    variables = dict(entry.split("=", 1) for entry in config.get("Env") or [])
    user, _, group = (config.get("User") or "0").partition(":")
    return Image(
        root=root,
        entrypoint=config.get("Entrypoint") or [],
        arguments=config.get("Cmd") or [],
        env=variables,
        user=int(user),
        group=int(group or 0),
        folder=config.get("WorkingDir") or "/",
        is_static=not libraries,
    )


def _unpack_layers(archive: Path, root: Path) -> dict[str, Any]:
    """Unpacks all layers; returns the image's config."""
    with tarfile.open(archive) as outer:

        def content(name: str) -> bytes:
            file = outer.extractfile(name)
            if file is None:
                raise RuntimeError(f"{archive} has no {name}")
            return file.read()

        (described,) = json.loads(content("manifest.json"))
        for layer in described["Layers"]:
            with tarfile.open(fileobj=io.BytesIO(content(layer))) as inner:
                inner.extractall(root, numeric_owner=True)
        config: dict[str, Any] = json.loads(content(described["Config"]))["config"]
        return config


def _libraries(program: Path) -> list[Path]:
    """The shared libraries that a program needs; none if it is static, as the released one is."""
    done = subprocess.run(["ldd", program], capture_output=True, text=True)
    if done.returncode != 0:
        return []
    return [Path(found) for found in re.findall(r"(/\S+) \(0x", done.stdout)]
