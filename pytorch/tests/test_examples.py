"""The examples that need a cluster and nothing else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest
from forebay_cluster import REPOSITORY, Cluster

import forebay


def test_a_ddp_job_of_two_gloo_processes_goes_on_with_one(
    bucket: forebay.Bucket, cluster: Cluster
) -> None:
    bucket.put_many((f"train/{i:03}", bytes([i] * (i + 1))) for i in range(101))
    script = str(REPOSITORY / "examples/train_ddp.py")
    done = subprocess.run(
        [sys.executable, script, f"ais://{bucket.name}/train/", "--stop", "3", "--then", "1"],
        env={**os.environ, "FOREBAY_ENDPOINT": cluster.endpoint},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    first, second, both = done.stdout.splitlines()
    assert first.startswith("2 processes, 3 steps: 48 samples")
    assert second.startswith("1 processes, 7 steps: 53 samples")
    assert both == "101 samples in all, 101 of them different"


def run(cluster: Cluster, script: str, *arguments: str) -> list[str]:
    """The lines that an example prints."""
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "examples" / script), *arguments],
        env={**os.environ, "FOREBAY_ENDPOINT": cluster.endpoint},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_the_custom_cifar_dataset_trains(bucket: forebay.Bucket, cluster: Cluster) -> None:
    lines = run(cluster, "train_cifar10.py", bucket.uri, "--generate", "100", "--epochs", "3")
    assert [line.partition(", ")[0] for line in lines] == [
        f"epoch {epoch}: 100 pictures" for epoch in range(3)
    ]
    losses = [float(line.rpartition(" ")[2]) for line in lines]
    assert losses[-1] < losses[0]


def test_segmentation_learns_its_masks(bucket: forebay.Bucket, cluster: Cluster) -> None:
    pytest.importorskip("numpy")
    lines = run(cluster, "train_segmentation.py", bucket.uri, "--generate", "200")
    assert [line.partition(", ")[0] for line in lines] == [
        f"epoch {epoch}: 200 samples" for epoch in range(3)
    ]
    overlaps = [float(line.rpartition(" ")[2]) for line in lines]
    assert overlaps[-1] > 0.5 > overlaps[0]


def test_checkpoints_of_one_process_are_kept_and_gone_on_from(
    bucket: forebay.Bucket, cluster: Cluster
) -> None:
    folder = f"{bucket.uri}/run"
    first = run(cluster, "checkpoint_single_node.py", folder)
    assert [line.partition(":")[0] for line in first[:-1]] == ["step 10", "step 20", "step 30"]
    assert first[-1] == "newest step=30.pt, 1 removed"
    second = run(cluster, "checkpoint_single_node.py", folder, "--steps", "20", "--keep", "1")
    assert second[0] == "goes on from step=30.pt"
    assert second[-1] == "newest step=50.pt, 3 removed"
    losses = [float(line.rpartition(" ")[2]) for line in first[:-1] + second[1:-1]]
    assert losses[-1] < losses[0] / 10
    assert list(bucket.list_snapshot().names()) == ["run/step=50.pt"]


def test_a_sharded_training_of_four_processes_goes_on_with_two(
    bucket: forebay.Bucket, cluster: Cluster
) -> None:
    folder = f"{bucket.uri}/fsdp"
    four, two, newest = run(cluster, "checkpoint_fsdp.py", folder, "--steps", "10", "--keep", "1")
    said = re.compile(r"(\d) processes: steps (\d+) to (\d+), loss (\S+) to (\S+), (\d) removed")
    (first, second) = (said.fullmatch(line) for line in (four, two))
    assert first and second
    assert first.groups()[:3] == ("4", "0", "10") and first[6] == "1"
    assert second.groups()[:3] == ("2", "10", "20") and second[6] == "2"
    assert second[4] == first[5], "what two loaded is what four had"
    assert float(second[5]) < float(first[5]) < float(first[4])
    assert newest == f"newest {folder}/step=20"


@pytest.mark.parametrize("how", [["--workers", "0"], ["--iterable"], ["--threads", "2"]])
def test_a_bucket_is_listed_and_downloaded(
    bucket: forebay.Bucket, cluster: Cluster, how: list[str]
) -> None:
    bucket.put_many((f"a/{i}", bytes(10)) for i in range(30))
    first, *epochs = run(cluster, "list_and_download.py", f"{bucket.uri}/a/", *how)
    assert re.fullmatch(r"listed 30 objects, 300 bytes, in [\d.]+ s", first)
    assert len(epochs) == 2
    for number, line in enumerate(epochs):
        assert line.startswith(f"epoch {number}: 30 objects, 300 bytes, ")


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_the_cells_of_the_starter_notebook_run(
    cluster: Any, client: forebay.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = json.loads((REPOSITORY / "examples/starter.ipynb").read_text())
    assert notebook["nbformat"] == 4
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 5 and not any(cell["outputs"] for cell in cells)
    # Workers that were forked find the functions of the notebook by this name.
    module = type(sys)("starter")
    monkeypatch.setitem(sys.modules, "starter", module)
    try:
        for number, cell in enumerate(cells):
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), module.__dict__)
        assert module.losses[-1] < module.losses[0] / 2
        assert (module.seen, module.total) == (200, sum(200 + i for i in range(200)))
    finally:
        for name in ("starter", "starter-shards"):
            client.bucket(name).delete(missing_ok=True)
