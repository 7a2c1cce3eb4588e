"""One rank of a training by a framework, over many datasets and loaders one after the other.

    python forked_ranks.py FRAMEWORK PORT framework_job.py FRAMEWORK LENGTH FOLDER

The buckets `FRAMEWORK_BUCKETS` names hold LENGTH objects and samples, whose contents are their
numbers. Each rank writes to FOLDER what it saw: {case: [the numbers of each epoch] or an error}.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forebay
import torch
from forebay_torch import (
    BaseIterDataset,
    BatchIterDataset,
    DataShard,
    DistributedShardSampler,
    DynamicBatchSampler,
    IterableDataset,
    MapDataset,
    MixedDataset,
    MultiShardStream,
    ShardMapDataset,
    ShardReader,
    ThreadLoader,
)
from forebay_torch.compat.s3 import S3IterableDataset, S3MapDataset
from forebay_torch.datapipes import IterableWrapper
from torch.utils.data import DataLoader, Dataset
from torch.utils.data import IterableDataset as TorchIterableDataset

BATCH = 4
EPOCHS = 2
objects, shards = (forebay.Client().bucket(name) for name in os.environ["FRAMEWORK_BUCKETS"].split())


def number(content: Any) -> torch.Tensor:
    return torch.tensor(int(content))


def numbered(key: str, fields: Any) -> torch.Tensor:
    return number(fields["txt"])


def first(samples: list[Any]) -> torch.Tensor:
    """A batch of samples that are tuples: their first, or second where that is a key."""
    numbers = [sample[1] if isinstance(sample[0], str) else sample[0] for sample in samples]
    return torch.stack([n if isinstance(n, torch.Tensor) else number(n) for n in numbers])


def read(reader: Any) -> torch.Tensor:
    return number(reader.read())


class Plain(Dataset[Any]):
    """The control: what a framework does with a dataset of torch."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(index)


class PlainStream(TorchIterableDataset[Any]):
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[torch.Tensor]:
        return map(torch.tensor, range(self.length))


class Own(BaseIterDataset):
    def __iter__(self) -> Iterator[torch.Tensor]:
        self.reset()
        for item in self.worker_objects():
            yield number(item.get().read_all())


class Around(TorchIterableDataset[Any]):
    """A dataset of the user's own around one of ours."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __iter__(self) -> Iterator[Any]:
        yield from self.inner


def maps() -> MapDataset:
    return MapDataset(objects, data_format_fn=number, return_name=False)


def stream(kind: Any = IterableDataset, **options: Any) -> Any:
    return kind(objects, data_format_fn=number, return_name=False, **options)


def reader(**options: Any) -> ShardReader:
    return ShardReader(shards, decode=numbered, **options)


def ours(**options: Any) -> dict[str, Callable[[], Any]]:
    """Loaders over each dataset: a DataLoader and a ThreadLoader. Names say how they are sampled."""

    def loader(dataset: Any, **more: Any) -> DataLoader[Any]:
        more = {"batch_size": BATCH, **options, **more}
        return DataLoader(dataset, **more)

    def sampled(**more: Any) -> DataLoader[Any]:
        dataset = maps()
        return loader(dataset, sampler=DistributedShardSampler(dataset, **more))

    def dynamic(**more: Any) -> DataLoader[Any]:
        dataset = maps()
        sampler = DynamicBatchSampler(dataset, 8, **more)
        return loader(dataset, batch_sampler=sampler, batch_size=1)

    return {
        "map": lambda: loader(maps()),
        "map shuffled": lambda: loader(maps(), shuffle=True),
        "sampler": lambda: sampled(shuffle=False),
        "sampler shuffled": lambda: sampled(),
        "batch sampler": lambda: dynamic(),
        "batch sampler shuffled": lambda: dynamic(shuffle=True),
        "shard map shuffled": lambda: loader(
            ShardMapDataset(shards, decode=numbered), collate_fn=first, shuffle=True
        ),
        "s3 map": lambda: loader(S3MapDataset.from_prefix(objects.uri, transform=read)),
        "iterable": lambda: loader(stream()),
        "iterable shuffled": lambda: loader(stream(shuffle=True, batch_size=BATCH)),
        "batch iterable": lambda: loader(stream(BatchIterDataset)),
        "own iterable": lambda: loader(Own(objects)),
        "around iterable": lambda: loader(Around(stream())),
        "shards": lambda: loader(reader(), collate_fn=first),
        "shards shuffled": lambda: loader(
            reader(shuffle_shards=True, shuffle_buffer=8), collate_fn=first
        ),
        "mixed shuffled": lambda: loader(MixedDataset([maps()])),
        "members": lambda: loader(MultiShardStream([DataShard(shards)]), collate_fn=first),
        "s3 iterable": lambda: loader(
            S3IterableDataset.from_prefix(objects.uri, transform=read, enable_sharding=True)
        ),
        "threads map": lambda: ThreadLoader(maps(), BATCH),
        "threads map shuffled": lambda: ThreadLoader(maps(), BATCH, shuffle=True),
        "threads iterable shuffled": lambda: ThreadLoader(stream(shuffle=True), BATCH),
        "threads shards shuffled": lambda: ThreadLoader(reader(shuffle_shards=True), BATCH, collate_fn=first),
    }


def datapipe(**options: Any) -> DataLoader[Any]:
    files = IterableWrapper([f"{objects.uri}/"]).list_files_by_s3().load_files_by_s3()
    lines = files.readlines(return_path=False, decode=True).map(number)
    return DataLoader(lines, batch_size=BATCH, **options)


def with_accelerate(length: int) -> Iterator[tuple[str, Callable[[], list[list[int]]]]]:
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration

    def epochs(make: Callable[[], Any], config: dict[str, Any]) -> list[list[int]]:
        accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**config))
        loader = accelerator.prepare(make())
        return [[n for batch in loader for n in batch.tolist()] for _ in range(EPOCHS)]

    def all_of(
        named: str, config: dict[str, Any], **options: Any
    ) -> Iterator[tuple[str, Callable[[], list[list[int]]]]]:
        makers: dict[str, Callable[[], Any]] = {
            "control map": lambda: DataLoader(Plain(length), batch_size=BATCH, **options),
            "control iterable": lambda: DataLoader(PlainStream(length), batch_size=BATCH, **options),
            **ours(**options),
            "datapipe": lambda: datapipe(**options),
        }
        for case, make in makers.items():
            if not (named == "dispatch" and case.startswith("batch sampler")):
                yield f"{named}: {case}", lambda make=make: epochs(make, config)  # type: ignore[misc]

    # Workers are forked first, while the process has few threads.
    for name, config in (("default", {}), ("no dispatch", {"dispatch_batches": False})):
        for case in ("iterable", "iterable shuffled", "mixed shuffled", "members", "sampler", "shards"):
            if (name, case) == ("default", "shards"):
                # Raises on rank 0 alone, and the other would wait for it.
                continue
            make = ours(num_workers=3)[case]
            yield f"{name}, 3 workers: {case}", lambda make=make, config=config: epochs(make, config)  # type: ignore[misc]
        yield f"{name}, 3 workers: datapipe", lambda config=config: epochs(  # type: ignore[misc]
            lambda: datapipe(num_workers=3), config
        )
    yield from all_of("default", {})
    yield from all_of("dispatch", {"dispatch_batches": True})
    yield from all_of("no dispatch", {"dispatch_batches": False})
    yield from all_of("split", {"split_batches": True})
    yield from all_of("uneven", {"even_batches": False})
    # The last one: it raises on rank 0 alone, whose end the other sees.
    config = {"dispatch_batches": True}
    yield "dispatch: batch sampler", lambda: epochs(ours()["batch sampler"], config)


def with_lightning(length: int) -> Iterator[tuple[str, Callable[[], list[list[int]]]]]:
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.seen: list[list[int]] = []

        def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
            while len(self.seen) <= self.current_epoch:
                self.seen.append([])
            self.seen[self.current_epoch] += batch.tolist()
            return self.layer(torch.ones(1, 1)).sum()

        def predict_step(self, batch: torch.Tensor, index: int) -> int:
            self.seen = self.seen or [[]]
            self.seen[0] += batch.tolist()
            return 0

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def trained(make: Callable[[], Any], what: str = "fit") -> list[list[int]]:
        quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=2,
            strategy="ddp",
            max_epochs=EPOCHS,
            **dict.fromkeys(quiet, False),
        )
        module = Module()
        getattr(trainer, what)(module, make())
        return module.seen

    # Workers are forked first, while the process has few threads.
    for case in ("iterable shuffled", "mixed shuffled", "sampler shuffled"):
        for lasting in (False, True):
            make = ours(num_workers=1, persistent_workers=lasting)[case]
            yield f"fit, workers, {lasting}: {case}", lambda make=make: trained(make)  # type: ignore[misc]
    makers: dict[str, Callable[[], Any]] = {
        "control map": lambda: DataLoader(Plain(length), batch_size=BATCH),
        **ours(),
        "datapipe": datapipe,
    }
    for case, make in makers.items():
        yield f"fit: {case}", lambda make=make: trained(make)  # type: ignore[misc]
        drawn_alike = case in ("map shuffled", "shard map shuffled")
        if drawn_alike or ("shuffled" not in case and "threads" not in case):
            yield f"predict: {case}", lambda make=make: trained(make, "predict")  # type: ignore[misc]


def with_transformers(length: int) -> Iterator[tuple[str, Callable[[], list[list[int]]]]]:
    import transformers

    class Config(transformers.PretrainedConfig):  # type: ignore[misc]
        model_type = "tiny"

    class Model(transformers.PreTrainedModel):  # type: ignore[misc]
        config_class = Config

        def __init__(self, config: Config) -> None:
            super().__init__(config)
            self.layer = torch.nn.Linear(1, 1)
            self.seen: list[int] = []
            self.post_init()

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
            self.seen += labels.tolist()
            return {"loss": self.layer(x).mean() * 0, "logits": x}

    def sample(content: Any) -> dict[str, torch.Tensor]:
        return {"x": torch.ones(1), "labels": number(content)}

    def of_shard(key: str, fields: Any) -> dict[str, torch.Tensor]:
        return sample(fields["txt"])

    def collate(samples: list[Any]) -> Any:
        samples = [s[1] if isinstance(s, tuple) else s for s in samples]
        return torch.utils.data.default_collate(samples)

    def trained(make: Callable[[], Any], **options: Any) -> list[list[int]]:
        model = Model(Config())
        arguments = transformers.TrainingArguments(
            output_dir=sys.argv[3],
            per_device_train_batch_size=BATCH,
            num_train_epochs=EPOCHS,
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            save_strategy="no",
            logging_strategy="no",
            remove_unused_columns=False,
            **options,
        )
        dataset = make()
        transformers.Trainer(
            model=model, args=arguments, train_dataset=dataset, data_collator=collate
        ).train()
        half = len(model.seen) // EPOCHS
        return [model.seen[:half], model.seen[half:]]

    def mapped() -> MapDataset:
        return MapDataset(objects, data_format_fn=sample, return_name=False)

    class PlainSamples(Plain):
        def __getitem__(self, index: int) -> Any:
            return sample(index)

    def streamed(**options: Any) -> IterableDataset:
        return IterableDataset(objects, data_format_fn=sample, return_name=False, **options)

    makers: dict[str, Callable[[], Any]] = {
        "control map": lambda: PlainSamples(length),
        "map": mapped,
        "shard map": lambda: ShardMapDataset(shards, decode=of_shard),
        "iterable": streamed,
        "iterable shuffled": lambda: streamed(shuffle=True),
        "shards": lambda: ShardReader(shards, decode=of_shard),
        "mixed shuffled": lambda: MixedDataset([mapped()]),
    }
    for case, make in makers.items():
        yield f"default: {case}", lambda make=make: trained(make)  # type: ignore[misc]
    for case in ("iterable shuffled", "shards", "mixed shuffled"):
        make = makers[case]
        config = {"dispatch_batches": False}
        yield f"no dispatch: {case}", lambda make=make: trained(make, accelerator_config=config)  # type: ignore[misc]


def main(framework: str, length: int, folder: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    cases = {
        "accelerate": with_accelerate,
        "lightning": with_lightning,
        "transformers": with_transformers,
    }[framework](length)
    seen: dict[str, Any] = {}
    only = os.environ.get("FRAMEWORK_CASE", "")
    for case, run in cases:
        if only not in case:
            continue
        print(case, flush=True)
        try:
            seen[case] = run()
        except Exception as error:
            seen[case] = f"{type(error).__name__}: {error}"
    (Path(folder) / f"{os.environ['RANK']}.json").write_text(json.dumps(seen))
    # gloo's threads outlive their group, and now and then abort an interpreter that ends.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
