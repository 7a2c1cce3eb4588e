"""Iterable datasets with an ``__iter__`` of their own, and lines, resume at the exact sample."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from torch.utils.data import DataLoader

import forebay
from forebay_torch import BaseIterDataset, BatchIterDataset, IterableDataset, ThreadLoader
from forebay_torch.datapipes import IterableWrapper

torchdata = pytest.importorskip("torchdata.stateful_dataloader")

FILES = {f"{i:02}.txt": [f"file {i} line {j}" for j in range(i * 7 % 30)] for i in range(12)}
LINES = sorted(line for lines in FILES.values() for line in lines)

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


class LinesOfObjects(BaseIterDataset):
    def __iter__(self) -> Iterator[str]:
        self.reset()
        for item in self.worker_objects():
            yield from item.get().read_all().decode().splitlines()


class LinesOfSamples(IterableDataset):
    def __iter__(self) -> Iterator[str]:
        for _, content in super().__iter__():
            yield from content.decode().splitlines()


class LongLines(LinesOfSamples):
    """An ``__iter__`` over another one, that leaves samples out."""

    def __iter__(self) -> Iterator[str]:
        return (line for line in super().__iter__() if len(line) > 13)


class Mixin:
    def __iter__(self) -> Iterator[str]:
        for _, content in super().__iter__():  # type: ignore[misc]
            yield from content.decode().splitlines()


class LinesByMixin(Mixin, BatchIterDataset):
    pass


class Packed(IterableDataset):
    """Samples that reach over several files."""

    def __iter__(self) -> Iterator[str]:
        rest: list[str] = []
        for _, content in super().__iter__():
            rest += content.decode().splitlines()
            while len(rest) >= 4:
                yield "|".join(rest[:4])
                rest = rest[4:]


def pipe(bucket: forebay.Bucket, **options: Any) -> Any:
    files = IterableWrapper([f"{bucket.uri}/"]).list_files_by_s3().sharding_filter()
    return files.load_files_by_s3().readlines(return_path=False, decode=True)


KINDS = [LinesOfObjects, LinesOfSamples, LongLines, LinesByMixin, Packed, pipe]


@pytest.fixture
def filled(bucket: forebay.Bucket) -> forebay.Bucket:
    bucket.put_many(
        (name, "".join(f"{line}\n" for line in lines).encode()) for name, lines in FILES.items()
    )
    return bucket


def loader_of(kind: Any, bucket: forebay.Bucket, workers: int, **options: Any) -> Any:
    return torchdata.StatefulDataLoader(
        kind(bucket, **options), batch_size=4, num_workers=workers, collate_fn=list
    )


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_each_sample_comes_once_over_three_resumes(
    filled: forebay.Bucket, kind: Any, workers: int
) -> None:
    whole = sum(loader_of(kind, filled, workers), [])
    if kind is not Packed and kind is not LongLines:
        assert sorted(whole) == LINES
    chosen = random.Random(f"{kind.__name__} {workers}")
    got: list[str] = []
    state = None
    for steps in (chosen.randrange(1, 4), chosen.randrange(0, 3), chosen.randrange(1, 9), 10_000):
        loader = loader_of(kind, filled, workers)
        if state is not None:
            loader.load_state_dict(state)
        if steps:
            for step, batch in enumerate(loader, 1):
                got += batch
                state = loader.state_dict()
                if step == steps:
                    break
    assert got == whole


def test_the_order_of_an_epoch_is_resumed_too(filled: forebay.Bucket) -> None:
    options = {"shuffle": True, "seed": 3}
    orders = []
    for epoch in range(2):
        loader = loader_of(LinesOfSamples, filled, 2, **options)
        loader.dataset.set_epoch(epoch)
        orders.append(sum(loader, []))
    assert orders[0] != orders[1] and sorted(orders[1]) == LINES
    loader = loader_of(LinesOfSamples, filled, 2, **options)
    loader.dataset.set_epoch(1)
    batches = iter(loader)
    got = next(batches) + next(batches) + next(batches)
    state = loader.state_dict()
    again = loader_of(LinesOfSamples, filled, 2, **options)
    again.load_state_dict(state)
    assert got + sum(again, []) == orders[1]


def test_what_cannot_be_exact_raises(filled: forebay.Bucket) -> None:
    dataset = LinesOfSamples(filled)
    loader = DataLoader(dataset, batch_size=4, num_workers=2, collate_fn=list)
    next(iter(loader))
    with pytest.raises(TypeError, match="LinesOfSamples has an __iter__ of its own"):
        dataset.state_dict(num_samples=4)
    with pytest.raises(TypeError, match="LinesOfSamples has an __iter__ of its own"):
        dataset.state_dict()
    threads = ThreadLoader(LinesOfSamples(filled), batch_size=4, collate_fn=list)
    batches = iter(threads)
    next(batches)
    with pytest.raises(TypeError, match="LinesOfSamples has an __iter__ of its own"):
        threads.state_dict()
    loader = loader_of(LinesOfSamples, filled, 0)
    next(iter(loader))
    state = loader.dataset.state_dict()
    assert state["samples"] == 4
    with pytest.raises(ValueError, match="no state of a class with an __iter__"):
        dataset.load_state_dict(IterableDataset(filled).state_dict())
    with pytest.raises(ValueError, match="the state is of LinesOfSamples"):
        LinesOfObjects(filled).load_state_dict(state)
    with pytest.raises(ValueError, match="for the same shape"):
        LinesOfSamples(filled, rank=1, world_size=2).load_state_dict(state)
    with pytest.raises(ValueError, match="no state that state_dict"):
        IterableDataset(filled).load_state_dict(state)
    lines = pipe(filled)
    with pytest.raises(ValueError, match="no state of a LineReader"):
        lines.load_state_dict(state)
    with pytest.raises(ValueError, match="same number of workers"):
        lines.load_state_dict({**lines.state_dict(), "worker": [1, 2]})


def test_a_state_of_the_subclass_prevails(filled: forebay.Bucket) -> None:
    class Own(IterableDataset):
        def __iter__(self) -> Iterator[Any]:
            return iter(())

        def state_dict(self, num_samples: int | None = None) -> dict[str, Any]:
            return {"own": True}

    assert Own(filled).state_dict() == {"own": True}
