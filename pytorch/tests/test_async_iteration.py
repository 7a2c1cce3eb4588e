"""Datasets in loops of asyncio: the samples of a blocking loop, and the loop goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

import forebay
from forebay_torch import (
    BaseIterDataset,
    IterableDataset,
    MapDataset,
    MixedDataset,
    ShardReader,
    ShardWriter,
    ThreadLoader,
)


@pytest.fixture
def filled(bucket: forebay.Bucket) -> forebay.Bucket:
    bucket.put_many((f"o{i:04}", bytes([i % 256])) for i in range(500))
    return bucket


async def collected(samples: Any) -> list[Any]:
    return [sample async for sample in samples]


def test_async_for_gives_what_for_gives(filled: forebay.Bucket, client: forebay.Client) -> None:
    dataset = IterableDataset(filled, shuffle=True)
    assert asyncio.run(collected(dataset)) == list(dataset)
    mixed = MixedDataset([MapDataset(filled), MapDataset(filled)])
    assert len(asyncio.run(collected(mixed))) == 1000
    loader = ThreadLoader(MapDataset(filled), batch_size=64, threads=2)
    assert [len(names) for names, _ in asyncio.run(collected(loader))] == [64] * 7 + [52]
    with ShardWriter("shards/%d.tar", maxcount=5, bucket=filled) as writer:
        for i in range(12):
            writer.write({"__key__": f"{i:02}", "bin": bytes([i])})
    shards = ShardReader(filled, prefix_map={filled: "shards/"})
    assert asyncio.run(collected(shards)) == list(shards)


def test_aget_returns_samples_by_number(filled: forebay.Bucket, cluster: Any) -> None:
    dataset = MapDataset(filled)

    async def use() -> tuple[Any, ...]:
        one, many = await asyncio.gather(dataset.aget(3), dataset.aget_many([5, 1, 400]))
        with pytest.raises(IndexError):
            await dataset.aget(500)
        return one, many

    assert asyncio.run(use()) == (dataset[3], [dataset[5], dataset[1], dataset[400]])


class Failing(BaseIterDataset):
    """Ends with an error, or does not end."""

    def __init__(self, bucket: forebay.Bucket, pause: float = 0) -> None:
        super().__init__(bucket)
        self.pause = pause

    def __iter__(self) -> Iterator[int]:
        yield from range(3)
        time.sleep(self.pause)
        raise ValueError("no fourth")


def test_an_error_comes_behind_the_samples_before_it(filled: forebay.Bucket) -> None:
    async def use() -> list[int]:
        seen = []
        with pytest.raises(ValueError, match="no fourth"):
            async for sample in Failing(filled):
                seen.append(sample)
        return seen

    assert asyncio.run(use()) == [0, 1, 2]


def test_a_read_does_not_block_the_loop_and_a_cancelled_task_ends_immediately(filled: forebay.Bucket) -> None:
    async def use() -> tuple[int, float]:
        ticks = 0
        task = asyncio.create_task(collected(Failing(filled, pause=1.5)))
        started = time.monotonic()
        while time.monotonic() - started < 0.3:
            await asyncio.sleep(0.01)
            ticks += 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return ticks, time.monotonic() - started

    async def both() -> tuple[int, float]:
        return await asyncio.wait_for(use(), 10)

    ticks, seconds = asyncio.run(both())
    assert ticks >= 5 and seconds < 1.4


def test_two_loops_over_one_dataset_are_apart(filled: forebay.Bucket) -> None:
    dataset = IterableDataset(filled)

    async def use() -> list[Any]:
        return await asyncio.gather(collected(dataset), collected(IterableDataset(filled)))

    first, second = asyncio.run(use())
    assert first == second == list(dataset)
