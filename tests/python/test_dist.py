"""Release files: pip installs them from a static index, their checksums and lists are right, and
the same input gives the same bits.

The short tests pack a program that only starts the one under test, and wheels made of the packages
that are installed here; the packing is that of `make dist`. test_released.py builds everything.
"""

from __future__ import annotations

import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY
from forebay_dist import (
    VERSION,
    Environment,
    layer_of,
    served,
    sha256,
    source_packages,
    use,
    wheel_of_installed,
)

sys.path[:0] = [str(REPOSITORY / "ci/dist"), str(REPOSITORY / "ci")]
import package_index  # noqa: E402
import sbom  # noqa: E402
import shipped_crates  # noqa: E402
import third_party  # noqa: E402
import wheel_program  # noqa: E402

PROCESSOR = os.uname().machine
PROGRAM = f"forebay-{VERSION}-{PROCESSOR}-linux"
IMAGE = f"forebay-image-{VERSION}-{PROCESSOR}.tar"
CHART = f"forebay-chart-{VERSION}.tgz"
SBOM = f"forebay-{VERSION}.cdx.json"
SIGNER = "releases@example.org"


@pytest.fixture(scope="module")
def parts(forebay_bin: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `forebay`, the program, and `packages`, the wheels and source packages."""
    folder = tmp_path_factory.mktemp("parts")
    program = folder / "forebay"
    program.write_text(f'#!/bin/sh\nexec {forebay_bin} "$@"\n')
    program.chmod(0o755)
    packages = folder / "packages"
    packages.mkdir()
    third_party_text = folder / "THIRD-PARTY.txt"
    third_party_text.write_text(third_party.document(shipped_crates.shipped().third_party()))
    wheel_program.add(wheel_of_installed("forebay", packages), program, [third_party_text])
    wheel_of_installed("forebay-torch", packages)
    source_packages(packages)
    return folder


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """A key of SSH that signs releases; None on a machine without OpenSSH."""
    if shutil.which("ssh-keygen") is None:
        return None
    file = tmp_path_factory.mktemp("key") / "release"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file], check=True)
    return file


@pytest.fixture(scope="module")
def dist(parts: Path, key: Path | None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `make dist SIGN=KEY` writes."""
    out = tmp_path_factory.mktemp("dist")
    pack(parts, out, SIGN=str(key or ""))
    return out


def pack(parts: Path, out: Path, **settings: str) -> None:
    command = [REPOSITORY / "ci/dist/pack.sh", parts / "forebay", parts / "packages", out]
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def bill_of(dist: Path) -> dict[str, Any]:
    bill: dict[str, Any] = json.loads((dist / SBOM).read_text())
    return bill


def test_everything_that_ships_is_there(dist: Path) -> None:
    names = {path.name for path in dist.iterdir()} - {"SHA256SUMS.sig"}
    wanted = {PROGRAM, IMAGE, SBOM, "LICENSE", "THIRD-PARTY.txt", "SHA256SUMS"}
    # Without Go there is no helm to be had, and no chart.
    assert wanted <= names <= wanted | {CHART, "simple"}
    assert CHART in names or "FOREBAY_REQUIRE_HELM" not in os.environ
    packages = {path.name for path in dist.glob("simple/*/*") if path.suffix in (".whl", ".gz")}
    assert len(packages) == 4
    assert {f"forebay-{VERSION}.tar.gz", f"forebay_torch-{VERSION}.tar.gz"} <= packages


def test_every_file_has_a_checksum(dist: Path) -> None:
    check = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    assert subprocess.run(check, cwd=dist).returncode == 0
    listed = {line.split("  ")[1] for line in (dist / "SHA256SUMS").read_text().splitlines()}
    files = {str(path.relative_to(dist)) for path in dist.rglob("*") if path.is_file()}
    assert listed == files - {"SHA256SUMS", "SHA256SUMS.sig"}


def test_the_list_of_checksums_is_signed(dist: Path, key: Path | None) -> None:
    if key is None:
        pytest.skip("ssh-keygen is missing")
    assert is_signed(dist, key, (dist / "SHA256SUMS").read_bytes())
    assert not is_signed(dist, key, b"another list\n")


def is_signed(dist: Path, key: Path, content: bytes) -> bool:
    """Whether the signature of the release fits this content."""
    signers = key.with_name("allowed_signers")
    signers.write_text(f"{SIGNER} {key.with_suffix('.pub').read_text()}")
    verify = [
        "ssh-keygen",
        "-Y",
        "verify",
        "-f",
        str(signers),
        "-I",
        SIGNER,
        "-n",
        "forebay-release",
    ]
    signature = ["-s", str(dist / "SHA256SUMS.sig")]
    done = subprocess.run([*verify, *signature], input=content, capture_output=True)
    return done.returncode == 0


def test_a_folder_with_other_files_is_left_alone(parts: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    command = [REPOSITORY / "ci/dist/pack.sh", parts / "forebay", parts / "packages", tmp_path]
    assert subprocess.run(command, capture_output=True).returncode == 2
    assert (tmp_path / "thesis.tex").exists()


class Links(html.parser.HTMLParser):
    """The links of a page: text and attributes."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found: dict[str, dict[str, str]] = {}
        self._attributes: dict[str, str] | None = None
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._attributes = {k: v or "" for k, v in attrs} if tag == "a" else None

    def handle_data(self, data: str) -> None:
        if self._attributes is not None:
            self.found[data] = self._attributes
            self._attributes = None


def test_the_index_lists_every_package_with_its_hash(dist: Path) -> None:
    simple = dist / "simple"
    projects = Links(simple / "index.html").found
    assert {name: a["href"] for name, a in projects.items()} == {
        "forebay": "forebay/",
        "forebay-torch": "forebay-torch/",
    }
    assert [p["name"] for p in json.loads((simple / "index.json").read_text())["projects"]] == [
        *projects
    ]
    for project in projects:
        links = Links(simple / project / "index.html").found
        files = {p.name: p for p in (simple / project).iterdir() if p.suffix in (".whl", ".gz")}
        assert links.keys() == files.keys()
        listed = json.loads((simple / project / "index.json").read_text())
        assert {f["filename"] for f in listed["files"]} == files.keys()
        assert listed["name"] == project and listed["versions"] == [VERSION]
        for name, link in links.items():
            assert link["href"] == f"{name}#sha256={sha256(files[name])}"
            assert re.fullmatch(r">=3\.1\d", link["data-requires-python"])
            if name.endswith(".whl"):
                metadata = simple / project / f"{name}.metadata"
                assert link["data-core-metadata"] == f"sha256={sha256(metadata)}"
        for entry in listed["files"]:
            assert entry["hashes"]["sha256"] == sha256(files[entry["filename"]])
            assert entry["size"] == files[entry["filename"]].stat().st_size


def test_a_file_under_a_wrong_name_does_not_get_into_the_index(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("simple/forebay-torch/*.whl")
    wrong = tmp_path / wheel.name.replace("forebay_torch", "other")
    shutil.copy(wheel, wrong)
    with pytest.raises(ValueError, match="is named otherwise than forebay-torch"):
        package_index.write_index(tmp_path / "simple", [wrong])


def test_pip_installs_serves_and_removes_it(dist: Path, tmp_path: Path) -> None:
    environment = Environment.make(tmp_path)
    before = environment.files()
    with served(dist) as server:
        environment.install(f"{server.url}/simple/")
        # pip asks for both projects; nothing else is asked of this server, and no other is.
        asked = {path.rstrip("/") for path in server.requests}
    assert {"/simple/forebay", "/simple/forebay-torch"} <= asked
    assert all(
        path.startswith(("/simple/forebay/", "/simple/forebay-torch/")) for path in server.requests
    )
    assert environment.run("forebay", "--version") == f"forebay {VERSION}\n"
    use(environment)
    environment.pip("uninstall", "--yes", "forebay", "forebay-torch")
    left = environment.files() - before
    assert left
    assert all(path.startswith("home/.cache/forebay/") for path in left), left


def test_the_packages_ask_for_nothing_that_is_large(dist: Path) -> None:
    required = {}
    for metadata in dist.glob("simple/*/*.metadata"):
        lines = metadata.read_text().splitlines()
        found = [line.split(": ", 1)[1] for line in lines if line.startswith("Requires-Dist: ")]
        required[metadata.parent.name] = [line for line in found if "extra ==" not in line]
    assert required["forebay-torch"] == [f"forebay=={VERSION}"]
    assert all("python_" in line for line in required["forebay"]), "only for old versions of Python"


def test_source_packages_hold_all_that_their_build_needs(dist: Path, tmp_path: Path) -> None:
    for project in ("forebay", "forebay-torch"):
        with tarfile.open(
            dist / f"simple/{project}/{project.replace('-', '_')}-{VERSION}.tar.gz"
        ) as tar:
            tar.extractall(tmp_path, filter="data")
            assert tar.getmember(f"{project.replace('-', '_')}-{VERSION}/LICENSE")
    # cargo finds every crate that the native core is made of.
    tree = ["cargo", "tree", "--package", "forebay-sdk", "--edges", "normal", "--prefix", "none"]
    done = subprocess.run(tree, cwd=tmp_path / f"forebay-{VERSION}", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    crates = {line.split()[0] for line in done.stdout.splitlines() if line}
    assert {"forebay-core", "forebay-client", "pyo3"} <= crates


@pytest.mark.parametrize("package", ["sdk", "pytorch"])
def test_each_package_carries_the_licence_of_the_repository(package: str) -> None:
    assert (REPOSITORY / package / "LICENSE").read_bytes() == (REPOSITORY / "LICENSE").read_bytes()


def test_the_bill_of_materials_is_whole(dist: Path) -> None:
    bill = bill_of(dist)
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.5", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", bill["serialNumber"])
    components = {component["bom-ref"]: component for component in bill["components"]}
    assert len(components) == len(bill["components"]), "each component is there once"
    for component in components.values():
        assert component["name"] and component["type"] in ("library", "file")
        for value in component.get("hashes", []):
            assert value["alg"] == "SHA-256" and re.fullmatch("[0-9a-f]{64}", value["content"])
    # Every edge of the graph ends at a component, and every component is in the graph.
    root = bill["metadata"]["component"]["bom-ref"]
    edges = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    assert edges.keys() == components.keys() | {root}
    assert {used for uses in edges.values() for used in uses} <= components.keys()
    linked = reachable(root, edges)
    files = {ref for ref, component in components.items() if component["type"] == "file"}
    assert linked == components.keys() - files | {root}


def reachable(start: str, edges: dict[str, list[str]]) -> set[str]:
    found: set[str] = set()
    ahead = [start]
    while ahead:
        here = ahead.pop()
        if here not in found:
            found.add(here)
            ahead += edges[here]
    return found


def test_the_bill_lists_what_is_linked_in_and_nothing_else(dist: Path) -> None:
    components = bill_of(dist)["components"]
    names = {component["name"] for component in components}
    assert {"tokio", "rustls", "aws-sdk-s3", "google-cloud-storage", "pyo3", "glibc"} <= names
    # For tests, for compiling, for other systems.
    assert not {"proptest", "tempfile-macros", "serde_derive", "cc", "windows-sys"} & names
    assert {"forebay", "forebay-torch", "torch", "tomli"} <= names
    crates = [c for c in components if c.get("purl", "").startswith("pkg:cargo/")]
    own = {c["name"].removeprefix("forebay-") for c in crates if "hashes" not in c}
    formats = {"archive", "routes", "s3", "v1"}
    assert own == formats | {
        "cli", "client", "clouds", "core", "gateway", "node", "sdk", "store", "target",
    }  # fmt: skip
    assert all(c["licenses"][0]["expression"] for c in crates)
    hashes = {c["name"]: c["hashes"][0]["content"] for c in components if c["type"] == "file"}
    assert hashes[PROGRAM] == sha256(dist / PROGRAM)
    assert hashes[IMAGE] == sha256(dist / IMAGE)


def test_the_bill_says_the_same_twice(dist: Path) -> None:
    graph = shipped_crates.shipped()
    assert sbom.bill(graph, [], 7) == sbom.bill(graph, [], 7)
    assert sbom.bill(graph, [], 7)["serialNumber"] != sbom.bill(graph, [], 8)["serialNumber"]


def test_licence_texts_are_in_everything_that_ships(dist: Path) -> None:
    text = (dist / "THIRD-PARTY.txt").read_text()
    (wheel,) = dist.glob("simple/forebay/*.whl")
    with zipfile.ZipFile(wheel) as archive:
        info = f"forebay-{VERSION}.dist-info"
        assert archive.read(f"{info}/licenses/THIRD-PARTY.txt").decode() == text
        assert "License-File: THIRD-PARTY.txt" in archive.read(f"{info}/METADATA").decode()
    layer = layer_of((dist / IMAGE).read_bytes())
    assert layer["usr/share/doc/forebay/THIRD-PARTY.txt"][1] == text.encode()
    # Each crate is in the list, and over a text.
    for crate in shipped_crates.shipped().third_party():
        name = f"{crate.id.name} {crate.id.version}"
        assert text.count(name) >= 2, name
    for phrase in ("Copyright (c) 2019 Tokio Contributors", "GNU LESSER GENERAL PUBLIC LICENSE"):
        assert phrase.lower() in text.lower(), phrase


def crate_with(folder: Path, license_: str, **files: str) -> shipped_crates.Crate:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    key = shipped_crates.CrateId("some", "1.0.0")
    return shipped_crates.Crate(key, license_, folder, "0" * 64, None)


def test_texts_of_a_crate_come_before_the_standard_ones(tmp_path: Path) -> None:
    files = {
        "LICENSE-MIT": "the text of the crate",
        "src/c/LICENSE": "that of C sources",
        "src/license.rs": "code",
    }
    crate = crate_with(tmp_path, "MIT", **files)
    assert sorted(third_party.license_texts(crate)) == [
        "that of C sources",
        "the text of the crate",
    ]
    assert third_party.document([crate]).count("the text of the crate") == 1


def test_a_crate_without_a_text_gets_the_standard_one_or_is_refused(tmp_path: Path) -> None:
    mit = third_party.standard_text("MIT")
    assert third_party.license_texts(crate_with(tmp_path, "MIT")) == [mit]
    assert third_party.license_texts(crate_with(tmp_path, "Unlicense/MIT")) == [mit]
    for expression in ("Sleepycat", "MIT AND Sleepycat", ""):
        with pytest.raises(third_party.NoLicenseText, match=r"some 1\.0\.0"):
            third_party.document([crate_with(tmp_path, expression)])


def test_the_packed_chart_is_the_chart(dist: Path) -> None:
    if not (dist / CHART).exists():
        pytest.skip("no helm")
    with tarfile.open(dist / CHART) as tar:
        names = set(tar.getnames())
    assert {"forebay/Chart.yaml", "forebay/values.yaml", "forebay/values.schema.json"} <= names


@pytest.mark.parametrize("target", ["shipped", "release"])
def test_what_ships_is_optimized_as_its_profile_says(target: str, tmp_path: Path) -> None:
    """CI sets these variables so that its builds take less time."""
    seen = tmp_path / "seen"
    cargo = tmp_path / "cargo"
    cargo.write_text(f'#!/bin/sh\nenv >"{seen}"\nexit 1\n')
    cargo.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    env |= {"CARGO_PROFILE_RELEASE_OPT_LEVEL": "1", "CARGO_PROFILE_DIST_LTO": "off"}
    command = ["make", "-C", str(REPOSITORY), target]
    assert subprocess.run(command, capture_output=True, env=env).returncode != 0
    assert "CARGO_PROFILE_" not in seen.read_text()
    assert "remap-path-prefix" in seen.read_text()
