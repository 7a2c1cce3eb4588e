"""The demo as `make demo` runs it, on few images: it checks its own promises and leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from forebay_cluster import REPOSITORY, binary

pytest.importorskip("PIL")


def command(folder: Path, *extra: str) -> list[str]:
    demo = str(REPOSITORY / "examples/demo.py")
    return [sys.executable, demo, "--bin", str(binary()), "--dir", str(folder), *extra]


def left_over(folder: Path) -> list[str]:
    """Command lines of running processes that name ``folder``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if str(folder) in line:
                found.append(line)
    return found


def minio_options() -> list[str]:
    program = os.environ.get("FOREBAY_MINIO")
    if not program:
        pytest.skip("MinIO not found: FOREBAY_MINIO is not set")
    return ["--backend", "s3", "--minio", program]


@pytest.mark.parametrize("backend", ["folder", "s3"])
def test_the_second_epoch_reads_nothing_from_the_backend(tmp_path: Path, backend: str) -> None:
    folder = tmp_path / "demo"
    extra = minio_options() if backend == "s3" else []
    for _ in range(2 if backend == "folder" else 1):
        done = subprocess.run(
            command(folder, "--images", "90", *extra), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "samples/s" in done.stdout
        assert left_over(folder) == []
    cold, warm, packed, sharded = json.loads((folder / "result.json").read_text())
    assert [row["samples"] for row in (cold, warm, packed, sharded)] == [90] * 4
    assert (cold["backend_gets"], warm["backend_gets"]) == (90, 0)
    assert (warm["hits"], warm["misses"], warm["hit_bytes"]) == (90, 0, warm["bytes"])
    assert (packed["backend_gets"], sharded["backend_gets"], sharded["misses"]) == (0, 0, 0)
    assert packed["bytes"] == sharded["bytes"] == warm["bytes"]
    assert [row["epoch"] for row in (cold, warm, sharded)] == [1, 2, 3]
    if backend == "s3":
        assert (cold["minio_gets"], warm["minio_gets"]) == (90, 0)


@pytest.mark.parametrize("stage", ["forebay target", "train_images.py"])
@pytest.mark.parametrize("how,code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped_in_the_middle_it_stops_everything(
    tmp_path: Path, how: signal.Signals, code: int, stage: str
) -> None:
    folder = tmp_path / "demo"
    process = subprocess.Popen(command(folder, "--images", "900"), stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not any(stage in line for line in left_over(folder)):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(how)
    assert process.wait(60) == code
    assert left_over(folder) == []


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    done = subprocess.run(command(tmp_path), capture_output=True, text=True)
    assert done.returncode == 1
    assert "somebody else" in done.stderr
    assert (tmp_path / "thesis.txt").read_text() == "mine"
