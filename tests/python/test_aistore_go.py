"""AIStore's own integration tests in Go pass against our clusters, but for those known to differ.

`tests/data/aistore_go.json` says what each test does here: `passes`, `skips` (the test's own choice for
such a cluster), and `differs` with the reason. A test that does less than is written there fails this
one, and so does one that passes and is said to differ: the list says what is true.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from aistore_go import Outcome, program_folder, run_all
from conftest import REPOSITORY, Cluster

KNOWN = REPOSITORY / "tests/data/aistore_go.json"

pytestmark = pytest.mark.skipif(
    not os.environ.get("FOREBAY_TEST_LONG"), reason="FOREBAY_TEST_LONG is not set"
)


@pytest.mark.timeout(3600)
def test_aistore_s_go_tests_do_what_is_known(
    start_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    known = json.loads(KNOWN.read_text())
    folder = program_folder()
    said: list[str] = []

    def report(name: str, done: Outcome) -> None:
        print(f"{done.outcome:8} {done.seconds:6.1f} s  {name}  {done.message}", flush=True)
        said.append(name)

    def start() -> Cluster:
        return start_cluster(targets=3, options=["--disks", "2"])

    outcomes = run_all(folder, tmp_path, start, re.compile("."), report)
    wrong = [line for name, done in outcomes.items() if (line := judge(known, name, done))]
    missing = sorted({*known["passes"], *known["skips"], *known["differs"]} - {*outcomes})
    assert not wrong and not missing, "\n".join([*wrong, f"not run: {missing}"])


def judge(known: dict, name: str, done: Outcome) -> str:
    """What is wrong with an outcome; empty if it is as known."""
    if name in known["passes"]:
        return "" if done.outcome == "passed" else f"{name} {done.outcome}: {done.message}"
    if name in known["skips"]:
        return "" if done.outcome in ("skipped", "passed") else f"{name} {done.outcome}: {done.message}"
    if name in known["differs"]:
        return f"{name} passes: it no longer differs" if done.outcome == "passed" else ""
    return f"{name} is not in {KNOWN.name}: it {done.outcome}: {done.message}"
