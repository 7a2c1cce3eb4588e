"""Runs AIStore's own integration tests, a Go program, against clusters of ours.

`ci/aistore_go.sh` prints the folder with the program. Each test runs as a process of its own, so that
one that hangs costs its own time only. As a command it writes what each test did as JSON:

    build/venv/bin/python tests/python/aistore_go.py --out results.json [--only REGEX]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from forebay_cluster import REPOSITORY, Cluster

# The largest test writes some GiB.
TEST_TIMEOUT_S = 600
TARGETS = 3
_OUTCOME = re.compile(r"^--- (PASS|FAIL|SKIP): (\w+) ", re.MULTILINE)
_SKIPS = re.compile(r"requires|in short mode|must be a Cloud bucket")
_LOG_LINE = re.compile(r"^\s+\w+\.go:\d+: (.*)$")


@dataclass
class Outcome:
    """The outcome of one test: `passed`, `failed`, `skipped`, or `timeout`; and its first error."""

    outcome: str
    message: str
    seconds: float


def program_folder() -> Path:
    """The folder that FOREBAY_AISTORE_GO names, or that `ci/aistore_go.sh` builds."""
    done = subprocess.run(
        [REPOSITORY / "ci/aistore_go.sh"], stdout=subprocess.PIPE, text=True, check=True
    )
    return Path(done.stdout.strip())


def test_names(folder: Path, endpoint: str, home: Path) -> list[str]:
    """All tests of the program, in its own order."""
    done = _run(folder, endpoint, home, ["-test.list", "."], 60)
    return [line for line in done.stdout.splitlines() if re.fullmatch(r"Test\w+", line)]


def run_test(folder: Path, endpoint: str, home: Path, name: str) -> Outcome:
    """Runs one test in short mode."""
    begin = time.monotonic()
    args = ["-test.run", f"^{name}$", "-test.short", "-test.v"]
    args += ["-test.timeout", f"{TEST_TIMEOUT_S}s"]
    try:
        done = _run(folder, endpoint, home, args, TEST_TIMEOUT_S + 30)
        text, code = done.stdout, done.returncode
    except subprocess.TimeoutExpired as late:
        output = late.stdout or b""
        text, code = output.decode(errors="replace") if isinstance(output, bytes) else output, -1
    (home / f"{name}.log").write_text(text)
    words = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}
    found = [word for word, test in _OUTCOME.findall(text) if test == name]
    if code == -1 or "panic: test timed out" in text:
        outcome = "timeout"
    elif code == 0 and found:
        outcome = words[found[-1]]
    else:
        outcome = "failed"
    message = "" if outcome == "passed" else first_error(text)
    return Outcome(outcome, message, round(time.monotonic() - begin, 1))


def first_error(text: str) -> str:
    """The first line that a test logged as an error or as the reason of its skip, or its last line."""
    found = (match.group(1) for line in text.splitlines() if (match := _LOG_LINE.match(line)))
    lines = [line for line in found if "--- FAIL" not in text or not _SKIPS.search(line)]
    panics = [line for line in text.splitlines() if line.startswith(("panic:", "FAIL:"))]
    last = [line for line in text.splitlines() if line.strip()][-1:]
    return next(iter(lines + panics + last), "")[:300]


def run_all(
    folder: Path,
    home: Path,
    start: Callable[[], Cluster],
    chosen: re.Pattern[str],
    report: Callable[[str, Outcome], None],
) -> dict[str, Outcome]:
    """Runs the chosen tests one after the other.

    Settings and buckets that a failed test left behind would change the next test. So the next test
    gets a new cluster, as it does after a test that removed nodes.
    """
    cluster = start()
    outcomes = {}
    for name in filter(chosen.search, test_names(folder, cluster.endpoint, home)):
        if not is_whole(cluster):
            cluster = start()
        outcomes[name] = run_test(folder, cluster.endpoint, home, name)
        report(name, outcomes[name])
        if outcomes[name].outcome in ("failed", "timeout"):
            cluster = start()
    return outcomes


def is_whole(cluster: Cluster) -> bool:
    """Whether all nodes are there and in use."""
    try:
        with urllib.request.urlopen(f"{cluster.endpoint}/v1/daemon?what=smap", timeout=20) as answer:
            targets = json.load(answer)["tmap"].values()
    except OSError:
        return False
    return len(targets) == TARGETS and all(node["flags"] == 0 for node in targets)


def _run(
    folder: Path, endpoint: str, home: Path, args: list[str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    env = {"AIS_ENDPOINT": endpoint, "HOME": str(home), "PATH": os.environ["PATH"]}
    # Signed requests are verified: by one of the users that `forebay dev` has.
    env |= {"AWS_ACCESS_KEY_ID": "forebay", "AWS_SECRET_ACCESS_KEY": "forebaysecret"}
    env |= {"AWS_REGION": "us-east-1"}
    return subprocess.run(
        [folder / "ais-tests", *args],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=timeout_s,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="JSON: test -> what it did")
    parser.add_argument("--only", default=".", help="regular expression of names")
    options = parser.parse_args()
    folder = program_folder()
    logs = options.out.resolve().parent / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    running: list[Cluster] = []
    with tempfile.TemporaryDirectory() as scratch:

        def start() -> Cluster:
            while running:
                running.pop().stop()
            place = Path(tempfile.mkdtemp(dir=scratch))
            running.append(Cluster.start(place, targets=TARGETS, options=["--disks", "2"]))
            return running[-1]

        def report(name: str, done: Outcome) -> None:
            print(f"{done.outcome:8} {done.seconds:6.1f} s  {name}  {done.message}", flush=True)

        try:
            outcomes = run_all(folder, logs, start, re.compile(options.only), report)
        finally:
            running[-1].stop()
    written = {name: asdict(done) for name, done in sorted(outcomes.items())}
    options.out.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
