"""Frameworks that train on a GPU, with their defaults: every sample once in an epoch, also in one that is resumed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from gpu_device import DEVICE, gpu
from torch.utils.data import DataLoader

import forebay
from forebay_torch import DistributedShardSampler, IterableDataset, MapDataset, ThreadLoader

__all__ = ["gpu"]

TOTAL, BATCH, WORKERS = 48, 4, 2
STOP = 5
"""Steps of a training that ends in the middle of its first epoch."""
NUMBERS = list(range(TOTAL))

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def filled(cluster: Any) -> Iterator[forebay.Bucket]:
    bucket = forebay.Client(cluster.endpoint, timeout=20).bucket("gpu-frameworks").create()
    bucket.put_many((f"{i:03}", b"%d" % i) for i in NUMBERS)
    yield bucket
    bucket.delete()


def number(data: Any) -> torch.Tensor:
    return torch.tensor(int(bytes(data)))


def sample(data: Any) -> dict[str, torch.Tensor]:
    return {"x": torch.ones(1), "labels": number(data)}


def map_of(bucket: forebay.Bucket, of: Any = number) -> MapDataset:
    return MapDataset(bucket, data_format_fn=of, return_name=False)


def stream_of(bucket: forebay.Bucket, of: Any = number) -> IterableDataset:
    return IterableDataset(
        bucket, shuffle=True, batch_size=BATCH, data_format_fn=of, return_name=False
    )


def loader_of(bucket: forebay.Bucket, kind: str) -> Any:
    if kind == "threads":
        return ThreadLoader(map_of(bucket), BATCH, shuffle=True, threads=WORKERS, pin_memory=True)
    if kind == "stream":
        return DataLoader(stream_of(bucket), BATCH, num_workers=WORKERS, pin_memory=True)
    dataset = map_of(bucket)
    sampler = DistributedShardSampler(dataset) if kind == "sampler" else None
    return DataLoader(
        dataset, BATCH, shuffle=sampler is None, sampler=sampler, num_workers=WORKERS, pin_memory=True
    )


def check_epochs(seen: list[int], count: int) -> None:
    """Every epoch is whole, and two of them have different orders."""
    epochs = [seen[start : start + TOTAL] for start in range(0, len(seen), TOTAL)]
    assert len(epochs) == count and all(sorted(epoch) == NUMBERS for epoch in epochs)
    assert count == 1 or epochs[0] != epochs[1]


KINDS = ["map", "sampler", "stream", "threads"]


class Lightning:
    """Trainings by Lightning."""

    def __init__(self, bucket: forebay.Bucket) -> None:
        self.lightning = pytest.importorskip("lightning", reason="see ci/lightning.sh")
        self.bucket = bucket

    def train(self, kind: str, ckpt_path: str | None = None, **options: Any) -> tuple[list[int], Any]:
        """Returns the numbers that a training saw, and its trainer."""
        lightning, seen = self.lightning, list[int]()

        class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(1, 1)

            def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
                assert batch.device.type == DEVICE
                seen.extend(batch.tolist())
                loss: torch.Tensor = self.layer(batch.float()[:, None] * 0).sum()
                return loss

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), lr=1e-3)

        trainer = lightning.Trainer(logger=False, enable_progress_bar=False, devices=1, **options)
        trainer.fit(Module(), loader_of(self.bucket, kind), ckpt_path=ckpt_path)
        return seen, trainer


@pytest.mark.parametrize("kind", KINDS)
def test_lightning_sees_every_sample_once_in_each_epoch(filled: forebay.Bucket, kind: str) -> None:
    seen, _ = Lightning(filled).train(kind, max_epochs=2, enable_checkpointing=False)
    check_epochs(seen, 2)


def test_lightning_resumes_in_the_middle_of_an_epoch(
    filled: forebay.Bucket, tmp_path: Path
) -> None:
    training = Lightning(filled)
    from lightning.pytorch.callbacks import ModelCheckpoint

    saving = ModelCheckpoint(dirpath=tmp_path, every_n_train_steps=STOP)
    first, _ = training.train("threads", max_steps=STOP, callbacks=[saving])
    assert len(first) == STOP * BATCH
    second, _ = training.train(
        "threads", saving.best_model_path, max_epochs=2, enable_checkpointing=False
    )
    check_epochs(first + second, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_accelerate_sees_every_sample_once_in_each_epoch(filled: forebay.Bucket, kind: str) -> None:
    accelerate = pytest.importorskip("accelerate", reason="see ci/accelerate.sh")
    accelerator = accelerate.Accelerator()
    loader = accelerator.prepare(loader_of(filled, kind))
    seen = []
    for _ in range(2):
        for batch in loader:
            # A ThreadLoader is left as it is: its loop moves the batches.
            assert batch.device.type == DEVICE or (kind == "threads" and batch.is_pinned())
            seen += batch.to(DEVICE, non_blocking=True).tolist()
    check_epochs(seen, 2)


@pytest.mark.parametrize("kind", ["sampler", "stream"])
def test_accelerate_resumes_in_the_middle_of_an_epoch(filled: forebay.Bucket, kind: str) -> None:
    accelerate = pytest.importorskip("accelerate", reason="see ci/accelerate.sh")
    accelerator = accelerate.Accelerator()

    def counter(loader: Any) -> Any:
        return loader.sampler if kind == "sampler" else loader.dataset

    plain = loader_of(filled, kind)
    batches = iter(accelerator.prepare(plain))
    seen = [n for _ in range(STOP) for n in next(batches).tolist()]
    state = counter(plain).state_dict(num_samples=len(seen))
    resumed = loader_of(filled, kind)
    counter(resumed).load_state_dict(state)
    seen += [n for batch in accelerator.prepare(resumed) for n in batch.tolist()]
    check_epochs(seen, 1)


def trained_by_transformers(
    dataset: Any, folder: Path, resume: bool = False, **options: Any
) -> list[int]:
    """Returns the numbers that a training by the Trainer of transformers saw."""
    transformers = pytest.importorskip("transformers", reason="see ci/transformers.sh")
    pytest.importorskip("accelerate", reason="see ci/accelerate.sh")
    seen: list[int] = []

    class Config(transformers.PretrainedConfig):  # type: ignore[misc, name-defined]
        model_type = "tiny"

    class Model(transformers.PreTrainedModel):  # type: ignore[misc, name-defined]
        config_class = Config

        def __init__(self, config: Config) -> None:
            super().__init__(config)
            self.layer = torch.nn.Linear(1, 1)
            self.post_init()

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
            assert labels.device.type == x.device.type == DEVICE
            seen.extend(labels.tolist())
            return {"loss": self.layer(x).mean() * 0, "logits": x}

    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=BATCH,
        dataloader_num_workers=WORKERS,
        report_to=[],
        disable_tqdm=True,
        **options,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = transformers.Trainer(model=Model(Config()), args=arguments, train_dataset=dataset)
        trainer.train(resume_from_checkpoint=resume or None)
    return seen


@pytest.mark.parametrize("make", [map_of, stream_of])
def test_transformers_sees_every_sample_once_in_each_epoch(
    filled: forebay.Bucket, tmp_path: Path, make: Any
) -> None:
    seen = trained_by_transformers(make(filled, sample), tmp_path, num_train_epochs=2, save_strategy="no")
    check_epochs(seen, 2)


@pytest.mark.parametrize("make", [map_of, stream_of])
def test_transformers_resumes_in_the_middle_of_an_epoch(
    filled: forebay.Bucket, tmp_path: Path, make: Any
) -> None:
    saving = {"save_strategy": "steps", "save_steps": STOP}
    first = trained_by_transformers(make(filled, sample), tmp_path, max_steps=STOP, **saving)
    assert len(first) == STOP * BATCH
    steps = TOTAL // BATCH
    second = trained_by_transformers(make(filled, sample), tmp_path, True, max_steps=2 * steps, **saving)
    check_epochs(first + second, 2)
