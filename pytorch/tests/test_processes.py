"""Many processes on one dataset: what they share, and what they leave behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

import forebay
from forebay import Listing
from forebay_torch import IterableDataset, MapDataset

LEAVES = """
import os, signal, sys
from torch.utils.data import DataLoader
from forebay_torch import IterableDataset
loader = DataLoader(IterableDataset(sys.argv[1]), batch_size=2, num_workers=2)
next(iter(loader))
print("reading", flush=True)
os.killpg(0, signal.SIGKILL)
"""

ENDS = """
import sys
from forebay_torch import BatchIterDataset, IterableDataset, ThreadLoader
kind = {"batches": BatchIterDataset, "objects": IterableDataset}[sys.argv[2]]
dataset = kind(sys.argv[1], batch_size=2)
passes = {
    "dataset": lambda: iter(dataset),
    "threads": lambda: iter(ThreadLoader(dataset, batch_size=2, threads=1)),
    "no threads": lambda: iter(ThreadLoader(dataset, batch_size=2, threads=0)),
}
left = passes[sys.argv[3]]()
next(left)
"""


@pytest.fixture
def filled(bucket: forebay.Bucket) -> forebay.Bucket:
    bucket.put_many((f"{i:02}", bytes([i]) * 9) for i in range(24))
    return bucket


def killed(bucket: forebay.Bucket) -> None:
    """A job that is killed with all its workers while it reads."""
    job = subprocess.run(
        [sys.executable, "-c", LEAVES, bucket.uri],
        env={**os.environ, "FOREBAY_ENDPOINT": bucket.client.endpoint},
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert job.stdout == "reading\n" and job.returncode == -signal.SIGKILL, job.stderr


def test_a_job_that_was_killed_leaves_nothing_in_the_bucket_nor_in_shared_memory(
    filled: forebay.Bucket,
) -> None:
    def segments() -> set[str]:
        return {path.name for path in Path("/dev/shm").iterdir() if "forebay" in path.name}

    before = segments()
    killed(filled)
    assert [name for name, _ in filled.list_snapshot()] == [f"{i:02}" for i in range(24)]
    assert segments() == before
    # The next job on this machine, and one beside it, are not disturbed.
    jobs = [iter(DataLoader(IterableDataset(filled), batch_size=8, num_workers=2)) for _ in "ab"]
    assert [sum(len(names) for names, _ in job) for job in jobs] == [24, 24]


@pytest.mark.parametrize("reader", ["dataset", "threads", "no threads"])
@pytest.mark.parametrize("kind", ["batches", "objects"])
def test_a_program_ends_in_silence_while_a_pass_is_not_at_its_end(
    filled: forebay.Bucket, kind: str, reader: str
) -> None:
    job = subprocess.run(
        [sys.executable, "-c", ENDS, filled.uri, kind, reader],
        env={**os.environ, "FOREBAY_ENDPOINT": filled.client.endpoint},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (job.returncode, job.stdout, job.stderr) == (0, "", "")


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_workers_of_every_start_method_read_with_the_client_that_was_passed(
    filled: forebay.Bucket, method: str
) -> None:
    dataset = MapDataset(bucket_name=filled.uri, storage_client=filled.client, return_name=True)
    dataset[0]  # the parent's client is in use before the workers start
    loader = DataLoader(dataset, batch_size=5, num_workers=2, multiprocessing_context=method)
    names = [name for batch, _ in loader for name in batch]
    assert names == [f"{i:02}" for i in range(24)]
    assert dataset[1][0] == "01", "the parent's client works on"


def _dirty() -> int:
    """Private memory of this process that was written to, in bytes."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty"):
            return int(line.split()[1]) * 1024
    raise AssertionError


def _read(listing: Listing, grown: Any) -> None:
    before = _dirty()
    total = 0
    for row in range(0, len(listing), 3):
        name, size = listing[row]
        total += len(name) + size
    for name, size in listing:
        total += size
    with grown.get_lock():
        grown.value += _dirty() - before
    assert total


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux")
def test_workers_that_read_a_listing_of_a_million_objects_do_not_copy_it() -> None:
    listing = Listing.from_pairs((f"train/class-{i % 1000:04}/{i:09}.jpg", i) for i in range(10**6))
    one_copy = sum(len(part) for part in listing.buffers()) + 8 * len(listing)
    context = multiprocessing.get_context("fork")
    grown = context.Value("q", 0)
    workers = [context.Process(target=_read, args=(listing, grown)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert grown.value < 1.2 * one_copy


def test_a_listing_is_complete_and_without_duplicates_under_a_skewed_key_space(
    bucket: forebay.Bucket,
) -> None:
    shared = "x" * 60
    names = {
        *(f"{shared}/{i:04}" for i in range(500)),
        *(f"{shared}{letter}{i}" for i in range(50) for letter in "äé中"),
        *("/".join(["deep"] * i) + f"/{i}" for i in range(1, 30)),
    }
    bucket.put_many((name, b"") for name in names)
    listed = [name for name, _ in MapDataset(bucket).objects]
    assert listed == sorted(names, key=str.encode)


def test_a_killed_worker_is_an_error_and_no_hang(filled: forebay.Bucket) -> None:
    loader = iter(DataLoader(IterableDataset(filled), batch_size=1, num_workers=1))
    next(loader)
    (worker,) = loader._workers  # type: ignore[attr-defined]
    os.kill(worker.pid, signal.SIGKILL)
    end = time.monotonic() + 60
    with pytest.raises((RuntimeError, StopIteration)):
        while time.monotonic() < end:
            next(loader)
