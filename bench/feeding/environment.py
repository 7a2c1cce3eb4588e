"""The Python environment that has the peers' packages, made on first use."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

REQUIREMENTS = Path(__file__).parents[1] / "requirements-peers.txt"
MARK = "FOREBAY_BENCH_PEERS"


def enter(program: list[str] | None = None) -> None:
    """Restarts the program in the peers' environment, which includes the present one; this function
    returns only there. Without the packages it prints that, and the run continues without them.
    `program`: the interpreter's arguments before those of the program, for one that is a module."""
    if os.environ.get(MARK):
        return
    os.environ[MARK] = "1"
    try:
        python = made()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"not measured: gcs-torch-dataflux cannot be installed ({error})", file=sys.stderr)
        return
    words = [sys.argv[0]] if program is None else program
    os.execv(python, [str(python), *words, *sys.argv[1:]])


def made() -> Path:
    """The interpreter of the environment, in the folder where the tests keep theirs."""
    cache = Path(os.environ.get("FOREBAY_CACHE", Path.home() / ".cache/forebay"))
    base = sysconfig.get_paths()["purelib"]
    key = hashlib.sha256(REQUIREMENTS.read_bytes() + base.encode()).hexdigest()[:16]
    folder = cache / f"peers-{key}"
    if not folder.exists():
        print(f"making {folder}", file=sys.stderr)
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".peers-") as started:
            build(Path(started), base)
            # A rename: an interrupted build is never mistaken for a finished one.
            Path(started, "venv").rename(folder)
    return folder / "bin/python"


def build(folder: Path, base: str) -> None:
    builder = venv.EnvBuilder(with_pip=False, symlinks=True)
    place = folder / "venv"
    builder.create(place)
    python = place / "bin/python"
    own = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
        stdout=subprocess.PIPE, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    # addsitedir, not a bare path: the environment below has .pth files of its own.
    Path(own, "below.pth").write_text(f"import site; site.addsitedir({base!r})\n")
    command = [str(python), "-m", "pip", "install", "--quiet", "--no-input", "--no-deps"]
    command += ["--disable-pip-version-check", "-r", str(REQUIREMENTS)]
    subprocess.run(command, stdout=sys.stderr, check=True)
