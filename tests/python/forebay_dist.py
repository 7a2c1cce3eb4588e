"""The output of `make dist`, as a user gets it: served statically, installed by pip, and removed."""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import importlib.metadata
import io
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from forebay_cluster import REPOSITORY

VERSION = importlib.metadata.version("forebay")
# Variables that change what pip does, or that point at another server or program.
UNSET = ("PIP_", "PYTHONPATH", "FOREBAY_", "AIS_ENDPOINT", "AWS_", "GOOGLE_", "STORAGE_EMULATOR")


def wheel_of_installed(project: str, folder: Path) -> Path:
    """A wheel with the files of a package that is installed here, which saves its build."""
    found = importlib.metadata.distribution(project)
    name = f"{project.replace('-', '_')}-{found.version}"
    is_pure = "Root-Is-Purelib: true" in (found.read_text("WHEEL") or "")
    platform = sysconfig.get_platform().replace("-", "_")
    tag = "py3-none-any" if is_pure else f"cp311-abi3-{platform}"
    # Files that pip wrote while it installed the package.
    left_out = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "WHEEL"}
    content = {
        str(file): Path(str(file.locate())).read_bytes()
        for file in found.files or ()
        if file.name not in left_out and file.suffix != ".pyc" and ".." not in file.parts
    }
    pure = str(is_pure).lower()
    content[f"{name}.dist-info/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: {pure}\nTag: {tag}\n".encode()
    )
    record = f"{name}.dist-info/RECORD"
    lines = []
    wheel = folder / f"{name}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, data in content.items():
            archive.writestr(path, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{path},sha256={digest},{len(data)}")
        archive.writestr(record, "\n".join([*lines, f"{record},,"]) + "\n")
    return wheel


def source_packages(folder: Path) -> None:
    """The source packages of both projects, by their own build backends."""
    environment = {**os.environ, "PATH": f"{tools()}:{os.environ['PATH']}"}
    manifest = REPOSITORY / "sdk/Cargo.toml"
    maturin = ["maturin", "sdist", "--manifest-path", str(manifest), "--out", str(folder)]
    subprocess.run(maturin, env=environment, check=True, capture_output=True)
    code = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    copy = folder.parent / "pytorch"
    ignored = ("build", "*.egg-info", "__pycache__", ".*_cache")
    shutil.copytree(REPOSITORY / "pytorch", copy, ignore=shutil.ignore_patterns(*ignored))
    subprocess.run([sys.executable, "-c", code, folder], cwd=copy, check=True, capture_output=True)


def tools() -> str:
    """The folder of the programs of the shared test environment."""
    script = REPOSITORY / "ci/python_env.sh"
    done = subprocess.run([script], stdout=subprocess.PIPE, text=True, check=True)
    return f"{done.stdout.strip()}/bin"


@dataclass
class Served:
    """A folder that a static server serves, and the paths that were requested."""

    url: str
    requests: list[str]


@contextlib.contextmanager
def served(folder: Path) -> Iterator[Served]:
    """Serves a folder as `python -m http.server` does."""
    requests: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            requests.append(self.path)

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield Served(f"http://127.0.0.1:{server.server_port}", requests)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Environment:
    """A virtual environment of its own that finds torch where these tests find it, but not Forebay.

    Attributes:
        folder: The environment.
        home: The home folder of what runs in it.
    """

    folder: Path
    home: Path

    @classmethod
    def make(cls, folder: Path) -> Environment:
        made = cls(folder / "venv", folder / "home")
        made.home.mkdir()
        base = Path(tools())
        subprocess.run([base / "python", "-m", "venv", "--without-pip", made.folder], check=True)
        site = "import sysconfig; print(sysconfig.get_path('purelib'))"
        (torch_site, own_site) = (
            subprocess.run([python, "-c", site], stdout=subprocess.PIPE, text=True, check=True)
            for python in (base / "python", made.python)
        )
        path = Path(own_site.stdout.strip()) / "torch_of_the_tests.pth"
        path.write_text(f"import site; site.addsitedir({torch_site.stdout.strip()!r})\n")
        return made

    @property
    def python(self) -> Path:
        return self.folder / "bin/python"

    def variables(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of a user who has set nothing."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(UNSET)}
        return {
            **kept,
            "HOME": str(self.home),
            "XDG_CACHE_HOME": str(self.home / ".cache"),
            "PATH": f"{self.folder}/bin:/usr/bin:/bin",
            "PYTHONDONTWRITEBYTECODE": "1",
            **(more or {}),
        }

    def run(self, *command: str | Path, env: Mapping[str, str] | None = None) -> str:
        """Runs a command in this environment; fails the test if the command fails."""
        done = subprocess.run(
            [str(word) for word in command],
            env=self.variables(env),
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode != 0:
            pytest.fail(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def pip(self, *arguments: str | Path) -> str:
        """Runs pip on this environment, without any configuration file."""
        base = Path(tools()) / "python"
        pip = (base, "-m", "pip", "--isolated", "--disable-pip-version-check")
        return self.run(*pip, "--python", self.python, *arguments)

    def install(self, index: str) -> str:
        """Installs both packages from an index, and from no other."""
        options = ("--no-cache-dir", "--retries", "0", "--index-url", index)
        return self.pip("install", *options, "forebay", "forebay-torch")

    def files(self) -> set[str]:
        """Every file of the environment, and of its user's home."""
        return {
            str(path.relative_to(self.folder.parent))
            for folder in (self.folder, self.home)
            for path in folder.rglob("*")
            if not path.is_dir() and "__pycache__" not in path.parts
        }


def members(archive: bytes) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    """Every entry of a tar archive with its content."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        found = {}
        for info in tar:
            file = tar.extractfile(info)
            found[info.name] = (info, file.read() if file else b"")
        return found


def layer_of(image: bytes) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    """The files of an image, found through its index as a container runtime finds them."""
    files = {name: content for name, (_, content) in members(image).items()}

    def blob(descriptor: dict[str, Any]) -> bytes:
        digest = descriptor["digest"].removeprefix("sha256:")
        content = files[f"blobs/sha256/{digest}"]
        assert hashlib.sha256(content).hexdigest() == digest
        assert len(content) == descriptor["size"]
        return content

    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (manifest_descriptor,) = json.loads(files["index.json"])["manifests"]
    manifest = json.loads(blob(manifest_descriptor))
    config = json.loads(blob(manifest["config"]))
    (packed,) = manifest["layers"]
    layer = gzip.decompress(blob(packed))
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    # The same, as `docker load` finds it.
    (old,) = json.loads(files["manifest.json"])
    assert json.loads(files[old["Config"]]) == config
    assert [gzip.decompress(files[name]) for name in old["Layers"]] == [layer]
    return members(layer)


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


USE = """
import forebay, forebay_torch
client = forebay.Client()
bucket = client.bucket("first").create()
bucket.object("o").put(b"content")
assert bytes(bucket.object("o").get().read_all()) == b"content"
assert [bytes(data) for _, data in forebay_torch.MapDataset(bucket)] == [b"content"]
"""


def use(environment: Environment) -> None:
    """Starts a server of its own, writes and reads an object, and stops the server."""
    try:
        environment.run("python", "-c", USE)
    finally:
        environment.run("python", "-m", "forebay.local", "stop")


def make_dist() -> Path:
    """The `dist/` of this checkout, built now; or that in FOREBAY_DIST, as it is."""
    if named := os.environ.get("FOREBAY_DIST"):
        return Path(named)
    # Without the variables of the surrounding make: it is another run.
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(["make", "dist"], cwd=REPOSITORY, env=environment)
    assert done.returncode == 0
    return REPOSITORY / "dist"
