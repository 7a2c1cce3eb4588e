"""The check of circles between files finds those that are there, and no others."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_circles", ROOT / "ci/check_circles.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def circles(check: ModuleType, source: Path, files: dict[str, str]) -> list[set[str]]:
    for name, text in files.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = check.circles(check.rust_edges(source))
    return [{str(file.relative_to(source)) for file in circle} for circle in found]


def test_files_that_use_each_other_are_a_circle(check: ModuleType, tmp_path: Path) -> None:
    files = {
        "lib.rs": "mod a;\nmod b;\n",
        "a.rs": "use crate::b::B;\npub struct A;\n",
        "b.rs": "pub struct B;\nfn f() -> super::a::A {}\n",
    }
    assert circles(check, tmp_path, files) == [{"a.rs", "b.rs"}]


def test_a_name_is_followed_through_a_reexport(check: ModuleType, tmp_path: Path) -> None:
    files = {
        "lib.rs": "mod a;\nmod b;\n",
        "a.rs": "use crate::b::B;\npub struct A;\n",
        "b/mod.rs": "mod inner;\npub use self::inner::B;\n",
        "b/inner.rs": "use crate::a::A;\npub struct B;\n",
    }
    assert circles(check, tmp_path, files) == [{"a.rs", "b/inner.rs"}]


def test_a_module_may_use_the_one_that_it_lies_in(check: ModuleType, tmp_path: Path) -> None:
    files = {
        "lib.rs": "mod a;\n",
        "a/mod.rs": "mod inner;\nuse self::inner::B;\npub struct A;\n",
        "a/inner.rs": "use super::A;\npub struct B;\n",
    }
    assert circles(check, tmp_path, files) == []


def test_uses_of_tests_do_not_count(check: ModuleType, tmp_path: Path) -> None:
    files = {
        "lib.rs": "mod a;\nmod b;\n",
        "a.rs": "use crate::b::B;\npub struct A;\n",
        "b.rs": "pub struct B;\n\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n",
    }
    assert circles(check, tmp_path, files) == []
