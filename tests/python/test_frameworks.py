"""Frameworks that share data among processes lose and repeat no sample of our datasets."""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forebay
import pytest
import torch
from conftest import REPOSITORY, Cluster, free_ports
from forebay_torch import Fields, ShardWriter
from torch.utils.data import default_collate

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., Cluster]) -> Cluster:
    return start_cluster(targets=1)


def ranks_of(framework: str, program: str, *arguments: str) -> list[str]:
    """The command that starts a program of the repository as two ranks."""
    launcher = str(REPOSITORY / "tests/python/forked_ranks.py")
    command = [sys.executable, launcher, framework, str(free_ports(1))]
    return [*command, str(REPOSITORY / program), *arguments]


def two_ranks(
    cluster: Cluster, framework: str, length: int, folder: Path, only: str = ""
) -> dict[str, Any]:
    """Returns the samples of both ranks: {case: [the numbers of each epoch] or the error of each rank}."""
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not in PYTHONPATH; see ci/{framework}.sh")
    client = forebay.Client(cluster.endpoint, timeout=20)
    name = f"f{uuid.uuid4().hex[:8]}"
    objects, shards = client.bucket(name).create(), client.bucket(f"{name}s").create()
    objects.put_many((f"{i:03}", b"%02d" % i) for i in range(length))
    with ShardWriter("t-%03d.tar", maxcount=6, bucket=shards) as writer:
        for i in range(length):
            writer.write({"__key__": f"{i:03}", "txt": f"{i:02}"})
    job = "tests/python/framework_job.py"
    done = subprocess.run(
        ranks_of(framework, job, framework, str(length), str(folder)),
        env={
            **os.environ,
            "FOREBAY_ENDPOINT": cluster.endpoint,
            "FRAMEWORK_BUCKETS": f"{objects.name} {shards.name}",
            "FRAMEWORK_CASE": only,
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    first, second = (json.loads((folder / f"{rank}.json").read_text()) for rank in range(2))
    assert first.keys() == second.keys() and first
    together: dict[str, Any] = {}
    for case, seen in first.items():
        other = second[case]
        raised = [message for message in (seen, other) if isinstance(message, str)]
        together[case] = raised or [a + b for a, b in zip(seen, other, strict=True)]
    return together


def check(together: dict[str, Any], length: int, allowed: int) -> None:
    """Every case saw every sample in each epoch, and at most ``allowed`` of them twice."""
    wrong = {}
    for case, epochs in together.items():
        for epoch in epochs:
            if isinstance(epoch, str):
                wrong[case] = epoch
                continue
            counted = Counter(epoch)
            if len(counted) != length or len(epoch) - length > allowed:
                missing = sorted(set(range(length)) - set(counted))
                wrong[case] = f"{len(epoch)} samples, missing {missing}"
        if "shuffled" in case and len(epochs) > 1 and epochs[0] == epochs[1]:
            wrong[case] = "the same order in both epochs"
    assert not wrong, json.dumps(wrong, indent=1)


# In these cases accelerate's and the user's own loops set no epoch of a ThreadLoader.
_WITHOUT_EPOCH = ("threads iterable shuffled", "threads shards shuffled")
# accelerate cannot have these; each raises, see below.
_RAISES = {"dispatch: batch sampler", "split: batch sampler"}


def without_unset_epochs(together: dict[str, Any]) -> dict[str, Any]:
    return {
        case.replace("shuffled", "") if case.endswith(_WITHOUT_EPOCH) else case: epochs
        for case, epochs in together.items()
    }


@pytest.mark.parametrize("length", [50])
def test_accelerate_loses_no_sample(cluster: Cluster, tmp_path: Path, length: int) -> None:
    together = without_unset_epochs(two_ranks(cluster, "accelerate", length, tmp_path))
    control = together["default: control map"]
    allowed = max(len(epoch) - length for epoch in control)
    for case in [case for case in together if case.removesuffix(" shuffled") in _RAISES]:
        message = " ".join(map(str, together.pop(case)))
        assert "dispatch_batches" in message or "split_batches" in message, (case, message)
    # Of what several workers read, accelerate completes the last batches of each.
    workers = {case: seen for case, seen in together.items() if "workers" in case}
    check(workers, length, 3 * allowed)
    check({case: seen for case, seen in together.items() if case not in workers}, length, allowed)


@pytest.mark.parametrize("length", [49])
def test_lightning_loses_no_sample(cluster: Cluster, tmp_path: Path, length: int) -> None:
    together = two_ranks(cluster, "lightning", length, tmp_path)
    for case in ("fit: shards", "fit: shards shuffled"):
        # Ranks whose shards have different numbers of samples would wait for each other for ever.
        message = together.pop(case)
        assert len(message) == 2 and all('equal_length="drop" or "wrap"' in text for text in message), message
    for what in ("fit", "predict"):
        cases = {case: seen for case, seen in together.items() if case.startswith(what)}
        allowed = max(len(epoch) - length for epoch in cases[f"{what}: control map"])
        batches = {case: seen for case, seen in cases.items() if "batch sampler" in case}
        check({case: seen for case, seen in cases.items() if case not in batches}, length, allowed)
        # Ranks have equally many batches, of which one may come twice.
        check(batches, length, 0 if length % 8 == 0 or what == "predict" else 4)


@pytest.mark.parametrize("length", [48])
def test_transformers_trainer_loses_no_sample(
    cluster: Cluster, tmp_path: Path, length: int
) -> None:
    together = two_ranks(cluster, "transformers", length, tmp_path)
    control = together["default: control map"]
    check(together, length, max(len(epoch) - length for epoch in control))


@pytest.mark.parametrize(
    ("framework", "stream"), [("lightning", False), ("accelerate", True), ("transformers", True)]
)
def test_the_example_of_a_framework_sees_every_sample_once(
    cluster: Cluster, framework: str, stream: bool
) -> None:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not in PYTHONPATH; see ci/{framework}.sh")
    bucket = forebay.Client(cluster.endpoint, timeout=20).bucket(f"e{uuid.uuid4().hex[:8]}").create()
    bucket.put_many((f"{i:03}", b"%d" % i) for i in range(64))
    script = f"examples/frameworks/with_{framework}.py"
    options = ["--stream"] if stream else []
    done = subprocess.run(
        ranks_of(framework, script, bucket.uri, *options),
        env={**os.environ, "FOREBAY_ENDPOINT": cluster.endpoint, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith("epoch")]
    assert lines == [f"epoch {epoch}: 64 samples, 64 different" for epoch in range(2)]


def moves() -> dict[str, Callable[[Any], Any]]:
    """How frameworks move a batch to a device."""
    found: dict[str, Callable[[Any], Any]] = {
        "transformers": lambda batch: type(batch)({name: part for name, part in batch.items()})
    }
    if importlib.util.find_spec("lightning"):
        from lightning.fabric.utilities.apply_func import move_data_to_device

        found["lightning"] = lambda batch: move_data_to_device(batch, "cpu")
    if importlib.util.find_spec("accelerate"):
        from accelerate.utils import send_to_device

        found["accelerate"] = lambda batch: send_to_device(batch, "cpu")
    return found


@pytest.mark.parametrize("fill", [b"", None, b"-"])
def test_a_batch_of_fields_keeps_key_url_and_fill_when_it_is_moved(fill: Any) -> None:
    samples = [
        Fields({"cls": torch.tensor(number)}, fill, f"key {number}", f"url {number}")
        for number in range(2)
    ]
    for batch in (default_collate(samples), samples[0]):
        for framework, move in moves().items():
            moved = move(batch)
            assert type(moved) is Fields and moved == batch and moved is not batch, framework
            assert (moved.key, moved.url, moved.fill) == (batch.key, batch.url, batch.fill), framework
            assert moved["__key__"] == batch["__key__"] and {type(name) for name in moved} == {str}
            assert pickle.loads(pickle.dumps(moved)).url == batch.url
