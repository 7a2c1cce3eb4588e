"""The repository keeps its own rules, and the scripts that guard them do notice a breach."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "ci"))
import check_deps  # noqa: E402
import check_house  # noqa: E402


@pytest.fixture(scope="module")
def files() -> list[str]:
    if not (REPOSITORY / ".git").exists():
        pytest.skip("not a git checkout")
    return check_house.repository_files(REPOSITORY)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small repository that breaks no rule; each test breaks one."""
    content = {
        ".cargo/config.toml": '[build]\ntarget-dir = "build"\n',
        "Cargo.toml": '[workspace.package]\nversion = "1.2.3"\n',
        "sdk/pyproject.toml": '[project]\nname = "forebay"\nversion = "1.2.3"\n',
        "pytorch/pyproject.toml": '[project]\nname = "forebay-torch"\nversion = "1.2.3"\n',
        "target/src/lib.rs": '//! Owns bytes.\nfn f() {\n    info!(size = 3, "object stored");\n}\n',
        "pytorch/src/forebay_torch/fetch.py": "import torch\nfrom forebay import Client\n",
        "docs/book/README.md": "[Kept](kept.md)\n",
        "docs/book/kept.md": "`core/src/kept.rs::it_is_kept`, `sdk/tests/test_x.py::test_it_is_too`\n",
        "docs/SUMMARY.md": "# Summary\n\n- [Kept](book/README.md)\n  - [It](book/kept.md)\n",
        "core/src/kept.rs": "//! Kept.\n#[tokio::test(flavor = \"x\")]\nasync fn it_is_kept() {}\n",
        "sdk/tests/test_x.py": "def test_it_is_too() -> None:\n    pass\n",
        "sdk/python/forebay/client.py": "from ._core import Native\n",
        "sdk/python/forebay/tensor.py": "def f() -> None:\n    import torch\n",
    }
    for name, text in content.items():
        write(tmp_path, name, text)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    subprocess.run(["git", "-C", tmp_path, "add", "--all"], check=True)
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def problems(root: Path) -> list[str]:
    files = check_house.repository_files(root)
    return [problem for check in check_house.CHECKS for problem in check(root, files)]


@pytest.mark.parametrize("check", check_house.CHECKS, ids=lambda check: check.__name__)
def test_this_repository_keeps_the_rule(check, files: list[str]) -> None:
    assert check(REPOSITORY, files) == []


def test_a_tree_that_keeps_all_rules_has_no_problems(tree: Path) -> None:
    assert problems(tree) == []


def test_an_ignored_target_crate_is_noticed(tree: Path) -> None:
    write(tree, ".gitignore", "target\n")
    assert any("is ignored" in problem for problem in problems(tree))


def test_an_untracked_target_crate_is_noticed(tree: Path) -> None:
    subprocess.run(["git", "-C", tree, "rm", "-q", "--cached", "target/src/lib.rs"], check=True)
    assert any("not tracked" in problem for problem in problems(tree))


def test_a_build_folder_named_target_is_noticed(tree: Path) -> None:
    write(tree, ".cargo/config.toml", '[build]\ntarget-dir = "target"\n')
    assert any("target-dir" in problem for problem in problems(tree))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("docs/big.txt", "x" * 1_000_001, "bytes"),
        ("docs/run.txt", "see " + "/home" + "/somebody/notes", "one machine"),
        ("docs/new.md", "A page.\n", "docs/new.md: is not in docs/SUMMARY.md"),
        (
            "docs/SUMMARY.md",
            "- [Kept](book/README.md)\n- [It](book/kept.md)\n- [Gone](gone.md)\n",
            "docs/gone.md does not exist",
        ),
        (
            "docs/SUMMARY.md",
            "- [Kept](book/README.md)\n- [It](book/kept.md)\n- [Again](book/kept.md)\n",
            "docs/book/kept.md is listed twice",
        ),
        ("sdk/pyproject.toml", '[project]\nversion = "1.2.4"\n', "has version 1.2.4"),
        ("core/src/kept.rs", "//! Kept.\nfn it_is_kept() {}\n", "no test core/src/kept.rs"),
        ("sdk/tests/test_x.py", "def test_other() -> None:\n    pass\n", "no test sdk/tests/test_x.py"),
        ("docs/book/kept.md", "It is kept.\n", "names no test"),
        ("docs/book/README.md", "Nothing.\n", "is not in docs/book/README.md"),
        ("core/src/size.rs", "pub struct Size;\n", "must start with //!"),
        ("core/src/utils.rs", "//! Things.\n", "name a file after"),
        ("core/src/a.rs", '//! A.\nfn f() {\n    warn!(%id, "Disk failed");\n}\n', "lower case"),
        ("core/src/a.rs", '//! A.\n#[error("disk failed.")]\nstruct E;\n', "no final period"),
        ("sdk/python/forebay/x.py", "import torch.utils\n", "must not import torch"),
        ("pytorch/src/forebay_torch/x.py", "from forebay._core import Native\n", "private"),
        ("pytorch/src/forebay_torch/x.py", "from forebay import _core\n", "private"),
    ],
)
def test_a_breach_is_noticed(tree: Path, name: str, text: str, expected: str) -> None:
    write(tree, name, text)
    found = problems(tree)
    assert len(found) == 1, found
    assert expected in found[0]


def test_messages_may_start_with_a_name_in_capitals(tree: Path) -> None:
    write(tree, "core/src/a.rs", '//! A.\nfn f() {\n    warn!("S3 answered 503, waiting ...");\n}\n')
    assert problems(tree) == []


def test_a_crate_may_use_only_what_is_below_it() -> None:
    package = {"id": "g", "name": "forebay-gateway", "dependencies": [{"name": "forebay-target"}]}
    found = check_deps.check_layers({"workspace_members": ["g"], "packages": [package]})
    assert found == ["forebay-gateway uses forebay-target; it may use client, core, node, routes, s3, v1"]


def test_no_crate_below_the_protocols_may_use_one() -> None:
    def package(name: str, *uses: str) -> dict[str, object]:
        named = [{"name": f"forebay-{use}"} for use in uses]
        return {"id": name, "name": f"forebay-{name}", "dependencies": named}

    packages = [package("core", "v1"), package("v1", "core", "s3"), package("routes", "v1", "s3")]
    members = [p["id"] for p in packages]
    found = check_deps.check_layers({"workspace_members": members, "packages": packages})
    assert found == [
        "forebay-core uses forebay-v1; it may use none of ours",
        "forebay-v1 uses forebay-s3; it may use core",
    ]


def test_a_second_tls_stack_and_io_in_core_are_noticed() -> None:
    found = check_deps.check_outside_crates(
        without_io={"s3": {"tokio 1.0.0": "tokio 1.0.0 <- forebay-s3"}},
        everything={
            "ring 0.17.0": "ring 0.17.0 <- rustls",
            "rustls 0.23.0": "rustls 0.23.0 <- hyper-rustls",
            "rustls 0.21.0": "rustls 0.21.0 <- aws-config",
        },
    )
    assert [problem.split(":")[0] for problem in found] == [
        "s3 must do no I/O",
        "not wanted in the product",
        "more than one version of rustls",
    ]
