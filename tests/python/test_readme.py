"""Every code block of the README does what a reader expects when it is pasted.

Python blocks run one by one against a cluster. Shell blocks run as one session, top to bottom,
in an empty folder, as in one terminal. Two kinds stay out of that session: blocks of `make`
commands, which build for minutes (their recipes are expanded, and run by name elsewhere), and the
`pip install`, which runs from the repository's root into a folder of its own.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import REPOSITORY, Cluster, FakeGcs, Minio, free_ports

README = REPOSITORY / "README.md"
PORT_IN_README = "7400"
SESSION_DEADLINE_S = 60.0
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")


class Block(NamedTuple):
    language: str
    line: int
    code: str

    @property
    def commands(self) -> list[str]:
        """Its lines without comments."""
        lines = (line.split("#")[0].strip() for line in self.code.splitlines())
        return [line for line in lines if line]

    def only(self, program: str) -> bool:
        return all(command.split()[0] == program for command in self.commands)


def blocks(page: Path = README) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(found.group(1), text.count("\n", 0, found.start()) + 2, found.group(2))
        for found in FENCE.finditer(text)
    ]


BASH = [block for block in blocks() if block.language == "bash"]
MAKE = [block for block in BASH if block.only("make")]
PIP = [block for block in BASH if block.only("pip")]
# The installation of a release and the login at a cloud: `test_released.py` has the first.
INSTALL = [block for block in BASH if "--index-url" in block.code]
SESSION = [block for block in BASH if block not in [*MAKE, *PIP, *INSTALL]]
PYTHON = [block for block in blocks() if block.language == "python"]
# Trains from a bucket without a cluster.
ALONE = next(block for block in PYTHON if "gs://bucket/" in block.code)
WITH_CLUSTER = [block for block in PYTHON if block != ALONE]


def by_line(block: Block) -> str:
    return f"line-{block.line}"


def environment(forebay_bin: Path, **more: str) -> dict[str, str]:
    """The environment of a reader's shell; the binary and the tests' Python are first on its PATH."""
    path = f"{forebay_bin.parent}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}"
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("FOREBAY_", "AIS_"))}
    return {**inherited, "PATH": path + os.environ["PATH"], **more}


def test_no_block_is_left_out() -> None:
    """A block in another language would be shown to readers and run by nobody."""
    assert {block.language for block in blocks()} <= {"bash", "python", ""}
    drawings = [block for block in blocks() if block.language == ""]
    assert all("┌" in block.code for block in drawings)
    assert MAKE and PIP and len(INSTALL) == 1 and len(SESSION) >= 4 and len(WITH_CLUSTER) >= 2


def test_first_screen_begins_with_a_laptop_and_shows_a_cluster_in_ten_lines_of_python() -> None:
    first_screen = README.read_text(encoding="utf-8").partition("\n## ")[0]
    assert "make demo" in first_screen and "make test" in first_screen and "┌" in first_screen
    order = [first_screen.index(text) for text in ("pip install", ALONE.code, "make demo")]
    assert order == sorted(order)
    example = WITH_CLUSTER[0]
    assert example.code in first_screen
    assert len([line for line in example.code.splitlines() if line]) == 10


def test_links_lead_somewhere() -> None:
    missing = [
        f"{page.relative_to(REPOSITORY)} -> {link}"
        for page in [README, REPOSITORY / "CONTRIBUTING.md", *REPOSITORY.glob("docs/**/*.md")]
        for link in LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / link).exists()
    ]
    assert missing == []


@pytest.mark.parametrize("block", MAKE, ids=by_line)
def test_make_commands_exist(block: Block) -> None:
    for command in block.commands:
        done = subprocess.run(
            ["make", "--dry-run", *shlex.split(command)[1:]],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert "cargo" in done.stdout, f"`{command}` would build nothing"


# A build of all crates from nothing takes minutes where other tests run beside it.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("block", PIP, ids=by_line)
def test_packages_install_as_shown(block: Block, forebay_bin: Path, tmp_path: Path) -> None:
    for command in block.commands:
        # The command itself is the README's; the variables keep it off the network and out of
        # the environment that the tests run in. (pip reads "no" of a "no-" option as yes.)
        done = subprocess.run(
            [sys.executable, "-m", *shlex.split(command)],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            env=environment(
                forebay_bin,
                PIP_TARGET=str(tmp_path),
                PIP_NO_DEPS="1",
                PIP_NO_BUILD_ISOLATION="no",
                PATH=os.pathsep.join([str(build_tools()), os.environ["PATH"]]),
            ),
        )
        shutil.rmtree(REPOSITORY / "pytorch/build", ignore_errors=True)
        assert done.returncode == 0, done.stdout + done.stderr
    names = {"forebay/__init__.py", "forebay_torch/__init__.py"}
    assert {name for name in names if (tmp_path / name).is_file()} == names


def build_tools() -> Path:
    """Returns the folder of the program `maturin`: that beside the module, in the shared environment."""
    import maturin

    return Path(maturin.__file__).parents[4] / "bin"


@pytest.mark.parametrize("scheme", ["gs", "s3"])
def test_block_without_a_cluster_reads_the_bucket_once_and_then_the_disk(
    scheme: str, fake_gcs: FakeGcs, minio: Minio, forebay_bin: Path, tmp_path: Path
) -> None:
    images = {f"train/{i:02}.jpg": bytes(1_000 + i) for i in range(50)}
    if scheme == "gs":
        fake_gcs.create_bucket("bucket")
        for name, image in images.items():
            fake_gcs.put("bucket", name, image)
    else:
        s3 = minio.client()
        s3.create_bucket(Bucket="bucket")
        for name, image in images.items():
            s3.put_object(Bucket="bucket", Key=name, Body=image)
    script = tmp_path / "train.py"
    script.write_text(ALONE.code.replace("gs://", f"{scheme}://"), encoding="utf-8")
    cloud = fake_gcs.env if scheme == "gs" else minio.env
    env = environment(forebay_bin, HOME=str(tmp_path), FOREBAY_LOCAL_SIZE="1GiB", **cloud)
    env.pop("XDG_CACHE_HOME", None)

    def run(*arguments: str | Path) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, timeout=120, env=env
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    try:
        lines = [line.split() for line in run(script).splitlines()]
        url = run("-m", "forebay.local").strip()
    finally:
        run("-m", "forebay.local", "stop")
    for epoch in ("0", "1"):
        of_epoch = [line for line in lines if line[0] == epoch]
        assert sum(int(line[1]) for line in of_epoch) == 50
        assert sum(int(line[3]) for line in of_epoch) == sum(map(len, images.values()))
    assert url.startswith("http://127.0.0.1:")
    if scheme == "gs":
        assert fake_gcs.reads("bucket") == 50, "each object is read once"


@pytest.mark.parametrize("block", WITH_CLUSTER, ids=by_line)
def test_python_block_runs(
    block: Block, cluster: Cluster, forebay_bin: Path, tmp_path: Path
) -> None:
    port = cluster.endpoint.rsplit(":", 1)[1]
    script = tmp_path / "block.py"
    script.write_text(block.code.replace(PORT_IN_README, port), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(forebay_bin, FOREBAY_ENDPOINT=cluster.endpoint),
    )
    assert done.returncode == 0, f"README.md:{block.line}\n{done.stdout}{done.stderr}"


def test_shell_blocks_run_in_order_and_leave_nothing_running(
    forebay_bin: Path, tmp_path: Path
) -> None:
    port = free_ports(4)
    script = ["set -euo pipefail"]
    for block in SESSION:
        script.append(f"echo '=== README.md:{block.line}'")
        script.append(block.code.replace(PORT_IN_README, str(port)))
    home = tmp_path / "home"
    work = tmp_path / "work"
    log = tmp_path / "log"
    home.mkdir()
    work.mkdir()
    with log.open("wb") as output:
        session = subprocess.Popen(
            ["bash", "-c", "\n".join(script)],
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment(forebay_bin, HOME=str(home)),
        )
        try:
            session.wait(timeout=SESSION_DEADLINE_S)
        except subprocess.TimeoutExpired:
            pytest.fail(f"did not end within {SESSION_DEADLINE_S:g} s:\n{log.read_text()}")
        finally:
            left = group_members(session.pid)
            if left:
                os.killpg(session.pid, signal.SIGKILL)
            session.wait()
    printed = log.read_text()
    assert session.returncode == 0, printed
    assert "hello from a bucket" in printed
    assert left == [], f"still running after the last block: {left}\n{printed}"
    assert not (work / "try").exists()


def group_members(group: int) -> list[str]:
    """Names of the living processes of a process group."""
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # pid (name) state ppid pgrp …, where the name may hold anything
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        state, _, pgrp = rest.split()[:3]
        if int(pgrp) == group and state != "Z":
            members.append(name)
    return members
