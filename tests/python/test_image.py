"""The container image: what is in it, how it is run, and the same bits for the same program.

The program in it is a stand-in, which is never run; the packing is that of `make dist`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPOSITORY
from forebay_dist import VERSION, layer_of, members, sha256

sys.path.insert(0, str(REPOSITORY / "deploy"))
import oci_image  # noqa: E402

PROCESSOR = os.uname().machine


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("program") / "forebay"
    file.write_text("#!/bin/true\n")
    return file


@pytest.fixture(scope="module")
def image(program: Path) -> Path:
    archive = program.with_name("image.tar")
    build(program, archive)
    return archive


def build(program: Path, archive: Path, **more: str) -> None:
    environment = {**os.environ, "BINARY": str(program), **more}
    script = REPOSITORY / "deploy/build-image.sh"
    done = subprocess.run([script, archive], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"localhost/forebay:{VERSION}\n"


def test_the_image_holds_a_program_and_little_else(image: Path, program: Path) -> None:
    layer = layer_of(image.read_bytes())
    files = {name: content for name, (info, content) in layer.items() if info.isfile()}
    texts = {f"{oci_image.LICENSES_FOLDER}/{name}" for name in ("LICENSE", "THIRD-PARTY.txt")}
    etc = {
        f"etc/{name}"
        for name in ("group", "nsswitch.conf", "passwd", "ssl/certs/ca-certificates.crt")
    }
    assert files.keys() == texts | etc | {"usr/local/bin/forebay"}
    assert files["usr/local/bin/forebay"] == program.read_bytes()
    assert b"BEGIN CERTIFICATE" in files["etc/ssl/certs/ca-certificates.crt"]
    for name, (info, _) in layer.items():
        state = name == "var/lib/forebay"
        assert info.uid == info.gid == (65532 if state else 0), name
        executable = info.isdir() or name == "usr/local/bin/forebay"
        assert info.mode == (0o755 if executable else 0o644), name
        parent = str(Path(name).parent)
        assert parent == "." or layer[parent][0].isdir(), "a folder comes with all above it"
    assert len({info.mtime for info, _ in layer.values()}) == 1


def test_the_image_says_how_it_is_run(image: Path) -> None:
    files = {name: content for name, (_, content) in members(image.read_bytes()).items()}
    (old,) = json.loads(files["manifest.json"])
    assert old["RepoTags"] == [f"localhost/forebay:{VERSION}"]
    described = json.loads(files[old["Config"]])
    config = described["config"]
    assert described["architecture"] == oci_image.ARCHITECTURES[PROCESSOR]
    assert config["Entrypoint"] == ["/usr/local/bin/forebay"]
    assert config["User"] == "65532:65532"
    assert config["WorkingDir"] == "/var/lib/forebay"
    assert config["ExposedPorts"].keys() == {"7400/tcp", "7410/tcp"}
    labels = {k.removeprefix("org.opencontainers.image."): v for k, v in config["Labels"].items()}
    assert labels.keys() == {"title", "description", "licenses", "version", "revision"}
    assert labels["version"] == VERSION
    head = subprocess.run(
        ["git", "-C", REPOSITORY, "rev-parse", "HEAD"], capture_output=True, text=True
    )
    assert labels["revision"] == (head.stdout.strip() or "unknown")


def test_the_same_program_gives_the_same_image(image: Path, program: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.tar"
    # The user, the time and the time zone have no part in it.
    program.touch()
    build(program, again, TZ="UTC+7", USER="someone")
    assert sha256(again) == sha256(image)


def test_a_program_that_needs_libraries_is_refused(tmp_path: Path) -> None:
    environment = {**os.environ, "BINARY": "/bin/sh"}
    command = [REPOSITORY / "deploy/build-image.sh", tmp_path / "image.tar"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "needs shared libraries" in done.stderr
    assert not (tmp_path / "image.tar").exists()


@pytest.mark.skipif(not shutil.which("skopeo"), reason="skopeo not found")
@pytest.mark.parametrize("form", ["oci-archive", "docker-archive"])
def test_skopeo_reads_the_image(image: Path, form: str, tmp_path: Path) -> None:
    command = ["skopeo", "--insecure-policy", "copy", f"{form}:{image}", f"dir:{tmp_path / 'copy'}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
