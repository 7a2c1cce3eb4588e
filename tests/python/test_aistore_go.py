"""AIStore's own integration tests in Go pass against our clusters, but for those known to differ.

`tests/data/aistore_go.json` says what each test does here: `passes`, `skips` (the test's own choice for
such a cluster), and `differs` with the reason; `not_judged` has those that need more than a cluster. A
test that does less than is written there fails this one, and so does one that passes and is said to
differ: the list says what is true.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aistore_go import Outcome, program_folder, run_all
from conftest import REPOSITORY, Cluster

KNOWN = REPOSITORY / "tests/data/aistore_go.json"

pytestmark = [
    pytest.mark.long,
    pytest.mark.hour,
    pytest.mark.skipif(
        "FOREBAY_TEST_LONG" not in os.environ, reason="make test-long runs it, in 20 minutes"
    ),
]


@pytest.mark.timeout(5400)
def test_aistore_s_go_tests_do_what_is_known(
    start_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    known = json.loads(KNOWN.read_text())
    folder = program_folder()

    def report(name: str, done: Outcome) -> None:
        print(f"{done.outcome:8} {done.seconds:6.1f} s  {name}  {done.message}", flush=True)

    def start() -> Cluster:
        return start_cluster(targets=3, options=["--disks", "2"])

    outcomes = run_all(folder, tmp_path, start, re.compile("."), report)
    wrong = [line for name, done in outcomes.items() if (line := judge(known, name, done))]
    missing = sorted({name for group in known.values() for name in group} - {*outcomes})
    assert not wrong and not missing, "\n".join([*wrong, f"not run: {missing}"])


def judge(known: dict[str, Any], name: str, done: Outcome) -> str:
    """Returns the problem of an outcome; empty if it is as known."""
    expected = {"passes": ["passed"], "skips": ["passed", "skipped"]}
    for group, outcomes in expected.items():
        if name in known[group] and done.outcome not in outcomes:
            return f"{name} {done.outcome}: {done.message}"
    if name in known["differs"] and done.outcome == "passed":
        return f"{name} passes: it no longer differs"
    if not any(name in group for group in known.values()):
        return f"{name} is not in {KNOWN.name}: {done.outcome}: {done.message}"
    return ""
