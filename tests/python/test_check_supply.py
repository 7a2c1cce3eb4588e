"""The check of crates against deny.toml refuses what the file does not allow."""

from __future__ import annotations

import sys

import pytest
from conftest import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "ci"))
from check_supply import ROOT, Crate, is_allowed, parsed, problem_of  # noqa: E402

RULES = {
    "licenses": {"allow": ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"]},
    "bans": {"deny": [{"crate": "openssl-sys", "reason": "one TLS stack"}]},
}


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("GPL-3.0", False),
        ("GPL-3.0 OR MIT", True),
        ("GPL-3.0/MIT", True),
        ("GPL-3.0 AND MIT", False),
        ("(GPL-3.0 OR MIT) AND Apache-2.0", True),
        ("MIT OR GPL-3.0 AND BSD-4-Clause", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("GPL-2.0 WITH Classpath-exception-2.0", False),
    ],
)
def test_a_licence_is_allowed_if_one_choice_needs_only_licences_of_the_list(
    expression: str, allowed: bool
) -> None:
    assert is_allowed(expression, set(RULES["licenses"]["allow"])) is allowed


@pytest.mark.parametrize("text", ["", "MIT OR", "(MIT", "MIT Apache-2.0", "MIT) OR (MIT"])
def test_a_text_that_is_no_expression_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="not an SPDX expression"):
        is_allowed(text, {"MIT"})


@pytest.mark.parametrize(
    ("line", "crate", "problem"),
    [
        ("serde v1.0.2\tMIT OR Apache-2.0", Crate("serde", "1.0.2", "MIT OR Apache-2.0", ""), None),
        ("a v0.1.0 (proc-macro)\tMIT (*)", Crate("a", "0.1.0", "MIT", ""), None),
        ("b v1.0.0\tGPL-3.0", Crate("b", "1.0.0", "GPL-3.0", ""), "not in deny.toml"),
        ("c v1.0.0\t", Crate("c", "1.0.0", "", ""), "names no licence"),
        ("d v1.0.0 (https://g/d#1f)\tMIT", Crate("d", "1.0.0", "MIT", "https://g/d#1f"), "not crates.io"),
        ("openssl-sys v0.9.0\tMIT", Crate("openssl-sys", "0.9.0", "MIT", ""), "it is banned: one TLS"),
        (f"own v0.1.0 ({ROOT}/core)\t", Crate("own", "0.1.0", "", f"{ROOT}/core"), None),
    ],
)
def test_a_crate_is_refused_for_its_ban_its_source_and_its_licence(
    line: str, crate: Crate, problem: str | None
) -> None:
    assert parsed(line) == crate
    found = problem_of(crate, RULES)
    assert found is None if problem is None else problem in (found or "")
