"""Lightning keeps its checkpoints in the cluster: whole, in the background, sharded."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import forebay
import pytest
import torch
from conftest import REPOSITORY, Cluster, Minio

pytest.importorskip("lightning", reason="not in PYTHONPATH; see ci/lightning.sh")

from forebay_torch import DistributedShardSampler, MixedDataset, ThreadLoader  # noqa: E402
from forebay_torch.compat.dataflux.lightning import (  # noqa: E402
    DatafluxFSDPStrategy,
    DatafluxLightningAsyncCheckpoint,
    DatafluxLightningCheckpoint,
)
from forebay_torch.lightning import (  # noqa: E402
    FSDPStrategy,
    LightningAsyncCheckpoint,
    LightningCheckpoint,
)
from lightning import Trainer  # noqa: E402
from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402
from lightning.pytorch.demos.boring_classes import BoringModel  # noqa: E402

WEIGHT = torch.arange(6 << 20, dtype=torch.float32)


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., Cluster], minio: Minio) -> Cluster:
    """In front of the MinIO that fsspec's clients of S3 see, too."""
    return start_cluster(targets=2, env=minio.env)


@pytest.fixture
def client(cluster: Cluster, minio: Minio, monkeypatch: pytest.MonkeyPatch) -> forebay.Client:
    monkeypatch.setenv("FOREBAY_ENDPOINT", cluster.endpoint)
    for name, value in minio.env.items():
        monkeypatch.setenv(name, value)
    return forebay.Client(cluster.endpoint, timeout=20)


@pytest.fixture
def bucket(client: forebay.Client) -> Iterator[forebay.Bucket]:
    """A native one."""
    own = client.bucket(f"t-{uuid.uuid4().hex[:12]}").create()
    yield own
    own.delete(missing_ok=True)


@pytest.fixture
def cloud(client: forebay.Client, minio: Minio) -> forebay.Bucket:
    """One of MinIO."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    boto3.client("s3", endpoint_url=minio.endpoint).create_bucket(Bucket=name)
    return client.bucket(name, "s3")


def names(bucket: forebay.Bucket) -> list[str]:
    return list(bucket.list_snapshot().names())


def fit(plugin: Any, folder: str, epochs: int, **options: Any) -> Trainer:
    keeping = ModelCheckpoint(dirpath=folder, save_top_k=1)
    trainer = Trainer(
        plugins=[plugin],
        callbacks=[keeping],
        accelerator="cpu",
        max_epochs=epochs,
        limit_train_batches=2,
        limit_val_batches=0,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(BoringModel(), **options)
    return trainer


@pytest.mark.parametrize("kind", [LightningCheckpoint, LightningAsyncCheckpoint])
def test_a_trainer_keeps_the_best_checkpoint_and_resumes_from_it(
    kind: Any, cloud: forebay.Bucket
) -> None:
    fit(kind(), f"{cloud.uri}/run", 3)
    assert names(cloud) == ["run/epoch=2-step=6.ckpt"]
    resumed = fit(kind(), f"{cloud.uri}/run", 4, ckpt_path=f"{cloud.uri}/run/epoch=2-step=6.ckpt")
    assert (resumed.current_epoch, resumed.global_step) == (4, 8)
    assert names(cloud) == ["run/epoch=3-step=8.ckpt"]


def test_checkpoints_are_saved_loaded_and_removed_by_any_path(bucket: forebay.Bucket) -> None:
    plugin = LightningCheckpoint("project", bucket.client)
    for path in (f"{bucket.uri}/a/b.ckpt", Path(f"fb://{bucket.name}/a/c.ckpt")):
        plugin.save_checkpoint({"state_dict": {"w": WEIGHT}, "epoch": 3}, path)
        loaded = plugin.load_checkpoint(path, map_location="cpu", weights_only=True)
        assert torch.equal(loaded["state_dict"]["w"], WEIGHT) and loaded["epoch"] == 3
        plugin.remove_checkpoint(path)
    for part in ("s.ckpt/.metadata", "s.ckpt/__0_0.distcp", "s.ckpt/meta.pt", "s.ckpt2"):
        bucket.object(part).put(b"x")
    plugin.remove_checkpoint(Path(f"{bucket.uri}/s.ckpt"))
    assert names(bucket) == ["s.ckpt2"]
    with pytest.raises(TypeError, match="storage_options"):
        plugin.save_checkpoint({}, f"{bucket.uri}/d", storage_options={"a": 1})
    with pytest.raises(ValueError, match="whole bucket"):
        plugin.remove_checkpoint(bucket.uri)
    inside = LightningCheckpoint(storage_client=bucket.client, bucket_name=bucket.uri)
    inside.save_checkpoint({"epoch": 1}, "bare.ckpt")
    assert "bare.ckpt" in names(bucket)
    inside.teardown()


def test_an_absolute_path_of_this_machine_is_a_file(
    bucket: forebay.Bucket, tmp_path: Path
) -> None:
    """There a Trainer puts the checkpoints for which nobody named a place."""
    plugin = LightningCheckpoint(bucket_name=bucket.uri)
    path = tmp_path / "lightning_logs/a.ckpt"
    plugin.save_checkpoint({"step": torch.tensor(3)}, path)
    assert path.is_file() and names(bucket) == []
    assert plugin.load_checkpoint(str(path)) == {"step": torch.tensor(3)}
    plugin.remove_checkpoint(path)
    assert not path.exists()


def test_a_trainer_with_a_folder_of_this_machine_keeps_its_files_there(
    bucket: forebay.Bucket, tmp_path: Path
) -> None:
    plugin = LightningCheckpoint("project", bucket.client, bucket_name=bucket.uri)
    fit(plugin, str(tmp_path / "run"), 1)
    assert [found.name for found in tmp_path.glob("run/*")] == ["epoch=0-step=2.ckpt"]
    assert names(bucket) == []


class Held(LightningCheckpoint):
    """Saves when it may."""

    def __init__(self, client: forebay.Client) -> None:
        super().__init__(None, client)
        self.may = threading.Event()

    def save_checkpoint(self, *arguments: Any, **options: Any) -> None:
        assert self.may.wait(20)
        super().save_checkpoint(*arguments, **options)


def test_a_save_returns_before_it_is_stored_and_removals_wait_for_it(
    bucket: forebay.Bucket,
) -> None:
    inner = Held(bucket.client)
    inner.may.set()
    plugin = LightningAsyncCheckpoint(checkpoint_io=inner)
    old, new = f"{bucket.uri}/old", f"{bucket.uri}/new"
    plugin.save_checkpoint({"epoch": 0}, old)
    assert plugin.load_checkpoint(old) == {"epoch": 0}
    inner.may.clear()
    weight = torch.ones(5)
    plugin.save_checkpoint({"weight": weight}, new)
    weight.zero_()
    plugin.remove_checkpoint(old)
    assert names(bucket) == ["old"], "while the new one is not stored"
    inner.may.set()
    plugin.teardown()
    assert names(bucket) == ["new"]
    assert torch.equal(plugin.load_checkpoint(new)["weight"], torch.ones(5))


def test_a_failure_is_raised_by_the_next_save_or_the_teardown(
    bucket: forebay.Bucket,
) -> None:
    plugin = LightningAsyncCheckpoint("project", bucket.client)
    missing = "ais://there-is-no-such-bucket/a.ckpt"
    plugin.save_checkpoint({"epoch": 0}, f"{bucket.uri}/old")
    plugin.save_checkpoint({"epoch": 1}, missing)
    plugin.remove_checkpoint(f"{bucket.uri}/old")
    with pytest.raises(forebay.NotFound, match="there-is-no-such-bucket"):
        plugin.save_checkpoint({"epoch": 2}, f"{bucket.uri}/next")
    assert names(bucket) == ["old"], "neither replaced nor removed"
    plugin.save_checkpoint({"epoch": 1}, missing)
    with pytest.raises(forebay.NotFound, match="there-is-no-such-bucket"):
        plugin.teardown()
    plugin.teardown()
    with pytest.raises(forebay.NotFound, match="there-is-no-such-bucket"):
        fit(plugin, "s3://there-is-no-such-bucket/run", 1)


@pytest.mark.parametrize(
    ("form", "in_background"), [("sharded", "no"), ("sharded", "yes"), ("full", "yes")]
)
def test_two_ranks_save_and_resume_fully_sharded_training(
    form: str, in_background: str, bucket: forebay.Bucket
) -> None:
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "tests/python/fsdp_job.py")]
        + [f"{bucket.uri}/c.ckpt", form, in_background],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert done.stdout.split()[-2:] == ["4", "8"]
    stored = names(bucket)
    if form == "full":
        assert stored == ["c.ckpt"]
        return
    assert stored[0] == "c.ckpt/.metadata" and stored[-1] == "c.ckpt/meta.pt"
    assert [name[: len("c.ckpt/__0_")] for name in stored[1:-1]] == ["c.ckpt/__0_", "c.ckpt/__1_"]


def test_a_strategy_removes_whole_folders(bucket: forebay.Bucket) -> None:
    for kind in (FSDPStrategy, DatafluxFSDPStrategy):
        for part in (".metadata", "__0_0.distcp", "meta.pt"):
            bucket.object(f"s.ckpt/{part}").put(b"x")
        kind("project", bucket.client, state_dict_type="sharded").remove_checkpoint(
            f"{bucket.uri}/s.ckpt"
        )
        assert names(bucket) == []
    with pytest.raises(TypeError, match="storage_options"):
        FSDPStrategy("project", bucket.client).save_checkpoint({}, f"{bucket.uri}/c", {"a": 1})


@pytest.mark.parametrize("kind", [DatafluxLightningCheckpoint, DatafluxLightningAsyncCheckpoint])
def test_both_forms_of_dataflux_are_taken(kind: Any, bucket: forebay.Bucket) -> None:
    own = bucket.client
    later = [kind("project", own), kind(project_name="project", storage_client=own)]
    earlier = [
        kind("project", bucket.uri, own),
        kind(project_name="project", bucket_name=bucket.uri, storage_client=own),
    ]
    for plugin in later + earlier:
        plugin.save_checkpoint({"epoch": 1}, f"{bucket.uri}/c.ckpt")
        assert plugin.load_checkpoint(f"{bucket.uri}/c.ckpt") == {"epoch": 1}
        plugin.remove_checkpoint(f"{bucket.uri}/c.ckpt")
        plugin.teardown()
    earlier[0].save_checkpoint({"epoch": 1}, "bare.ckpt")
    earlier[0].teardown()
    assert names(bucket) == ["bare.ckpt"]
    kind(project_name="project")
    with pytest.warns(UserWarning, match="storage_client of type object is not used"):
        kind("project", object(), disable_multipart=True)
    with pytest.raises(TypeError, match="twice"):
        kind("project", "b", bucket_name="b")


class Seen(BoringModel):
    """Keeps the numbers of its batches."""

    def __init__(self, asks_for_steps: bool) -> None:
        super().__init__()
        self.asks_for_steps = asks_for_steps
        self.numbers: list[int] = []

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> Any:
        self.numbers += batch.tolist()
        return super().training_step(torch.ones(len(batch), 32), batch_idx)

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        pass

    def configure_optimizers(self) -> Any:
        if self.asks_for_steps:
            assert self.trainer.estimated_stepping_batches > 0
        return super().configure_optimizers()


def numbers_by(kind: str) -> Any:
    """A loader with a state over 50 numbers, in an order of each epoch's own."""
    data: Any = range(50)
    if kind == "threads":
        return ThreadLoader(data, 4, shuffle=True)
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    if kind == "sampler":
        return stateful(data, 4, sampler=DistributedShardSampler(data), num_workers=2)
    workers = 2 if kind == "stream of workers" else 0
    return stateful(MixedDataset([data], batch_size=4), 4, num_workers=workers)


def train(model: Seen, kind: str, ckpt_path: Any = None, **options: Any) -> Trainer:
    trainer = Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    every: Any = range(50)
    loaders = [numbers_by(kind), ThreadLoader(every, 4)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(model, *loaders, ckpt_path=ckpt_path)
    return trainer


@pytest.mark.parametrize("kind", ["threads", "sampler", "stream", "stream of workers"])
def test_a_trainer_resumes_in_mid_epoch_also_if_it_makes_the_loaders_too_early(
    tmp_path: Path, kind: str
) -> None:
    first = Seen(False)
    # The validation looks at the loader's batch sampler.
    keeping = ModelCheckpoint(dirpath=tmp_path, every_n_train_steps=5)
    train(first, kind, max_steps=5, val_check_interval=3, callbacks=[keeping])
    saved = keeping.best_model_path
    second = Seen(False)
    train(second, kind, saved, max_epochs=1, enable_checkpointing=False)
    assert sorted(first.numbers + second.numbers) == list(range(50))
    third = Seen(True)
    train(third, kind, saved, max_epochs=3, enable_checkpointing=False)
    rest = 50 - len(first.numbers)
    assert sorted(first.numbers + third.numbers[:rest]) == list(range(50))
    for epoch in (third.numbers[rest:][:50], third.numbers[rest:][50:]):
        assert sorted(epoch) == list(range(50)), "later epochs are whole"
    whole = Seen(True)
    train(whole, kind, max_epochs=2, enable_checkpointing=False)
    assert sorted(whole.numbers) == sorted([*range(50)] * 2), "without a checkpoint nothing is lost"
