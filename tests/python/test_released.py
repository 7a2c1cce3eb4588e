"""The complete output of `make dist`: sizes, the same bits everywhere, and an import that is quick.

`make test-long` runs this. FOREBAY_DIST names a `dist/` that is there already, which saves its build.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import statistics
import subprocess
import zipfile
from pathlib import Path

import pytest
from conftest import REPOSITORY
from forebay_dist import (
    VERSION,
    Environment,
    layer_of,
    make_dist,
    served,
    sha256,
    tools,
    use,
)

pytestmark = [
    pytest.mark.long,
    pytest.mark.hour,
    pytest.mark.skipif("FOREBAY_TEST_LONG" not in os.environ, reason="make test-long runs it"),
    pytest.mark.timeout(5400),
]

PROCESSOR = os.uname().machine
MAX_WHEEL_BYTES = 25_000_000
MAX_IMPORT_US = 150_000
IMPORTS = 9


@pytest.fixture(scope="module")
def released() -> Path:
    return make_dist()


@pytest.fixture(scope="module")
def program(released: Path) -> Path:
    return released / f"forebay-{VERSION}-{PROCESSOR}-linux"


@pytest.fixture(scope="module")
def wheel(released: Path) -> Path:
    (found,) = released.glob("simple/forebay/*.whl")
    return found


@pytest.fixture(scope="module")
def installed(released: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    environment = Environment.make(tmp_path_factory.mktemp("installed"))
    with served(released) as server:
        environment.install(f"{server.url}/simple/")
    return environment


def test_one_program_is_in_all_that_ships(released: Path, program: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = archive.read(f"forebay-{VERSION}.data/scripts/forebay")
    image = (released / f"forebay-image-{VERSION}-{PROCESSOR}.tar").read_bytes()
    in_image = layer_of(image)["usr/local/bin/forebay"][1]
    assert program.read_bytes() == in_wheel == in_image


def test_no_folder_of_the_building_machine_is_in_what_is_compiled(
    program: Path, wheel: Path
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (core,) = (name for name in archive.namelist() if "_core" in name and name.endswith(".so"))
        compiled = {"program": program.read_bytes(), "core": archive.read(core)}
    for name, content in compiled.items():
        for folder in (REPOSITORY, Path.home()):
            # Most sources are named relative to these folders.
            found = re.findall(re.escape(str(folder).encode()) + rb"/[\w./-]+", content)
            assert not found, f"{name}: {found[:3]}"


@pytest.fixture
def image_root(released: Path, tmp_path: Path) -> Path:
    """A folder with the files of the image, to be the root folder of a program."""
    if os.getuid() != 0:
        pytest.skip("only root can change the root folder")
    root = tmp_path / "root"
    image = (released / f"forebay-image-{VERSION}-{PROCESSOR}.tar").read_bytes()
    for name, (info, content) in layer_of(image).items():
        if info.isdir():
            (root / name).mkdir(parents=True)
        else:
            (root / name).write_bytes(content)
        os.chown(root / name, info.uid, info.gid)
        (root / name).chmod(info.mode)
    return root


def within(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs a program in another root folder, as the user of the image."""
    chroot = ["chroot", "--userspec=65532:65532", str(root)]
    path = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    return subprocess.run([*chroot, *command], env=path, capture_output=True, text=True)


def test_the_program_needs_no_library_and_runs_in_the_image(
    program: Path, image_root: Path
) -> None:
    linked = subprocess.run(["ldd", program], capture_output=True, text=True)
    assert linked.returncode != 0 or "statically linked" in linked.stdout
    done = within(image_root, "/usr/local/bin/forebay", "version", "-o", "json")
    assert json.loads(done.stdout)["version"] == VERSION


TRAP = "__attribute__((constructor)) static void loaded(void) { __builtin_trap(); }\n"
LOOKUP = """
#include <netdb.h>
int main(void) { struct addrinfo *found; return getaddrinfo("localhost", "80", 0, &found); }
"""


def test_the_program_resolves_names_without_the_modules_of_another_c_library(
    image_root: Path, tmp_path: Path
) -> None:
    """nsswitch.conf names a module that ends every process that loads it."""
    libraries = image_root / "lib" / f"{PROCESSOR}-linux-gnu"
    libraries.mkdir(parents=True)
    (tmp_path / "trap.c").write_text(TRAP)
    (tmp_path / "lookup.c").write_text(LOOKUP)
    module = libraries / "libnss_trap.so.2"
    trap, lookup = str(tmp_path / "trap.c"), str(tmp_path / "lookup.c")
    shared = ["cc", "-shared", "-nostdlib", "-fPIC", "-o", str(module), trap]
    subprocess.run(shared, check=True)
    static = ["cc", "-static", "-o", str(image_root / "lookup"), lookup]
    subprocess.run(static, check=True, capture_output=True)
    (image_root / "etc/nsswitch.conf").write_text("hosts: trap files\npasswd: trap\n")
    (image_root / "etc/hosts").write_text("127.0.0.1 localhost\n")
    # Where random numbers come from; every container has it.
    (image_root / "dev").mkdir()
    for name, minor in (("random", 8), ("urandom", 9)):
        os.mknod(image_root / "dev" / name, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
        os.chmod(image_root / "dev" / name, 0o666)
    assert within(image_root, "/lookup").returncode < 0, "the module is not where glibc looks"
    # Nobody answers at port 1.
    options = ("--endpoint", "http://localhost:1", "--timeout", "1s")
    done = within(image_root, "/usr/local/bin/forebay", *options, "ls")
    assert done.returncode == 7, done.stderr


def test_the_wheel_is_small(wheel: Path) -> None:
    size = wheel.stat().st_size
    print(f"{wheel.name}: {size / 1e6:.1f} MB")
    assert size < MAX_WHEEL_BYTES


def test_the_import_is_quick(installed: Environment) -> None:
    times = []
    for _ in range(IMPORTS):
        command = [str(installed.python), "-X", "importtime", "-c", "import forebay"]
        done = subprocess.run(command, env=installed.variables(), capture_output=True, text=True)
        (line,) = re.findall(r"(?m)^import time:\s+\d+ \|\s+(\d+) \| forebay$", done.stderr)
        times.append(int(line))
    median = statistics.median(times)
    print(
        f"import forebay: {median / 1000:.0f} ms, median of {IMPORTS} ({min(times)}-{max(times)} us)"
    )
    assert median < MAX_IMPORT_US


def test_the_packages_work_and_go_without_a_trace(released: Path, tmp_path: Path) -> None:
    environment = Environment.make(tmp_path)
    before = environment.files()
    with served(released) as server:
        environment.install(f"{server.url}/simple/")
    assert environment.run("forebay", "--version") == f"forebay {VERSION}\n"
    use(environment)
    environment.pip("uninstall", "--yes", "forebay", "forebay-torch")
    left = environment.files() - before
    assert all(path.startswith("home/.cache/forebay/") for path in left), left


def test_wheels_can_be_built_from_the_source_packages(released: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{tools()}{os.pathsep}{os.environ['PATH']}"}
    # Crates that are compiled already for this checkout are used again.
    environment["CARGO_TARGET_DIR"] = str(REPOSITORY / "build")
    for source in released.glob("simple/*/*.tar.gz"):
        pip = [f"{tools()}/python", "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
        done = subprocess.run(
            [*pip, "--no-index", "--wheel-dir", tmp_path, source],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(tmp_path.glob("*.whl"))) == 2


def test_the_program_is_the_same_bits_when_built_elsewhere(program: Path, tmp_path: Path) -> None:
    """From a checkout in another folder, with another home of cargo and another target folder."""
    copy = tmp_path / "another" / "checkout"
    tracked = subprocess.run(
        ["git", "-C", REPOSITORY, "ls-files", "-z"], capture_output=True, check=True
    )
    for name in filter(None, tracked.stdout.decode().split("\0")):
        if (REPOSITORY / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, copy / name)
    cargo_home = tmp_path / "cargo"
    cargo_home.mkdir()
    known = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    (cargo_home / "registry").symlink_to(known / "registry")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("RUSTFLAGS", "CFLAGS"))}
    environment |= {"CARGO_HOME": str(cargo_home), "CARGO_TARGET_DIR": str(tmp_path / "out")}
    # The copy is no repository of git, and what is released may be of an
    # earlier commit of the same sources.
    environment["FOREBAY_COMMIT"] = commit_of(program)
    script = copy / "ci/dist/program.sh"
    done = subprocess.run([script], env=environment, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0
    again = Path(done.stdout.strip())
    if sha256(again) != sha256(program):
        pytest.fail(f"{again} differs from {program}: {first_difference(again, program)}")
    shutil.rmtree(tmp_path, ignore_errors=True)


def commit_of(program: Path) -> str:
    """The commit that a program says it is built from."""
    version = json.loads(subprocess.check_output([program, "version", "-o", "json"]))
    return str(version["commit"])


def first_difference(one: Path, other: Path) -> str:
    """Returns the first difference of two files, with the bytes around it."""
    a, b = one.read_bytes(), other.read_bytes()
    at = next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )
    around = slice(max(0, at - 40), at + 60)
    return f"sizes {len(a)} and {len(b)}, at {at}: {a[around]!r} and {b[around]!r}"


def test_the_checksums_are_those_of_the_files(released: Path) -> None:
    for line in (released / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((released / name).read_bytes()).hexdigest() == digest, name
