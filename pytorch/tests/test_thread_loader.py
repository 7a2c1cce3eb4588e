"""ThreadLoader: what a DataLoader gives, from threads."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from forebay_cluster import wait_until
from torch.utils.data import DataLoader, Dataset
from torch.utils.data import IterableDataset as TorchIterableDataset

import forebay
from forebay_torch import (
    DistributedShardSampler,
    DynamicBatchSampler,
    IterableDataset,
    MapDataset,
    ShardReader,
    ThreadLoader,
)
from shard_files import tar

TOTAL = 41
NAMES = [f"o/{i:02}" for i in range(TOTAL)]
COUNTS = [0, 1, 4]


@pytest.fixture(scope="module")
def filled(cluster: Any) -> Iterator[forebay.Bucket]:
    bucket = forebay.Client(cluster.endpoint, timeout=20).bucket("threads").create()
    bucket.put_many((name, name.encode() * 3) for name in NAMES)
    yield bucket
    bucket.delete()


class Numbers(Dataset[int]):
    """A map-style dataset of its own indices, in random time."""

    def __init__(self, total: int) -> None:
        self.total = total

    def __len__(self) -> int:
        return self.total

    def __getitem__(self, index: int) -> int:
        time.sleep(random.random() / 1000)
        return index


def names(batches: Any) -> list[str]:
    return [name for found, _ in batches for name in found]


def loader_threads() -> int:
    return sum(thread.name.startswith("forebay-loader") for thread in threading.enumerate())


@pytest.mark.parametrize("threads", COUNTS)
def test_batches_of_threads_are_those_of_a_data_loader_in_its_order(
    filled: forebay.Bucket, threads: int
) -> None:
    dataset = MapDataset(filled)
    expected = list(DataLoader(dataset, batch_size=4))
    loader = ThreadLoader(dataset, batch_size=4, threads=threads)
    assert list(loader) == expected
    assert len(loader) == len(expected)
    assert len(list(ThreadLoader(dataset, batch_size=4, threads=threads, drop_last=True))) == 10


@pytest.mark.parametrize("threads", COUNTS)
def test_an_iterable_is_shared_by_the_threads_in_the_epochs_order(
    filled: forebay.Bucket, threads: int
) -> None:
    expected = list(DataLoader(IterableDataset(filled, shuffle=True, seed=8), batch_size=3))
    dataset = IterableDataset(filled, shuffle=True, seed=8)
    loader = ThreadLoader(dataset, batch_size=3, threads=threads)
    for _ in range(2):
        assert list(loader) == expected
    assert len(loader) == len(expected) == 14
    dataset.set_epoch(1)
    other = list(loader)
    assert other != expected and sorted(names(other)) == NAMES
    assert len(list(ThreadLoader(dataset, batch_size=None, threads=threads))) == TOTAL


def test_a_shard_reader_is_read_by_all_threads(bucket: forebay.Bucket) -> None:
    for shard in range(5):
        bucket.object(f"{shard}.tar").put(tar((f"{shard}{i}.txt", b"x") for i in range(9)))
    loader = ThreadLoader(ShardReader(bucket), batch_size=4, threads=3)
    keys = [key for found, parts in loader for key in found]
    assert sorted(keys) == [f"{shard}{i}" for shard in range(5) for i in range(9)]


@pytest.mark.parametrize("threads", COUNTS)
def test_every_pass_is_an_epoch_with_an_order_of_its_own(threads: int) -> None:
    loader = ThreadLoader(Numbers(30), batch_size=4, shuffle=True, threads=threads, seed=5)
    epochs = [[int(i) for batch in loader for i in batch] for _ in range(2)]
    assert epochs[0] != epochs[1]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(30))
    loader.set_epoch(0)
    assert [int(i) for batch in loader for i in batch] == epochs[0]


def test_threads_work_at_the_same_time() -> None:
    meeting = threading.Barrier(4, timeout=20)

    class Together(Numbers):
        def __getitems__(self, indices: list[int]) -> list[int]:
            meeting.wait()
            return indices

    loader = ThreadLoader(Together(16), batch_size=2, threads=4, prefetch=1)
    assert sum(len(batch) for batch in loader) == 16


@pytest.mark.parametrize("kind", ["map", "iterable"])
def test_no_more_batches_are_made_ahead_than_asked_for(
    kind: str, filled: forebay.Bucket
) -> None:
    made = []

    def collate(samples: Any) -> Any:
        made.append(1)
        return samples

    dataset: Any = Numbers(TOTAL) if kind == "map" else IterableDataset(filled)
    loader = ThreadLoader(dataset, threads=3, prefetch=2, collate_fn=collate)
    for taken, _ in enumerate(loader, 1):
        if taken in (1, 10):
            # As many as may be; then it stays at that.
            wait_until(lambda taken=taken: len(made) == taken + 6, "the room is filled")
            time.sleep(0.05)
        assert len(made) <= taken + 6


@pytest.mark.parametrize("threads", [0, 1])
def test_the_next_batches_come_while_the_loop_is_at_one(
    cluster: Any, threads: int
) -> None:
    bucket = forebay.Client(cluster.endpoint, timeout=20).bucket(f"ahead-{threads}").create()
    # More than are ever on their way: at most 16 batches by one request, and two of those.
    many = [f"o/{i:03}" for i in range(200)]
    bucket.put_many((name, name.encode()) for name in many)
    loader = ThreadLoader(MapDataset(bucket), batch_size=2, threads=threads, prefetch=2)
    loop = iter(loader)
    assert next(loop)[0] == tuple(many[:2])
    time.sleep(1)
    for name in many:
        bucket.object(name).delete()
    assert next(loop)[1] == (many[2].encode(), many[3].encode())
    assert next(loop)[1] == (many[4].encode(), many[5].encode())
    with pytest.raises(forebay.NotFound, match="o/"):
        list(loop)
    bucket.delete()


def test_a_first_large_batch_shares_its_way_with_no_other(bucket: forebay.Bucket) -> None:
    bucket.put_many((f"large/{i}", os.urandom(1 << 20)) for i in range(8))
    dataset = MapDataset(bucket)
    started: list[int] = []
    begin = dataset.begin
    dataset.begin = lambda rows, names: started.append(len(rows)) or begin(rows, names)  # type: ignore
    ahead = dataset.start_prefetcher(3, 16, 16 << 20)
    batches = ahead.along([[2 * i, 2 * i + 1] for i in range(4)], beside=0)
    assert (next(batches), started) == ([0, 1], [2])
    taken = ahead.take([0, 1])
    assert taken is not None and [len(content) for content in taken[1]] == [1 << 20, 1 << 20]
    assert (next(batches), started) == ([2, 3], [2, 2, 2, 2])
    ahead.close()


def test_a_first_large_batch_shares_its_way_with_none_of_another_thread(
    bucket: forebay.Bucket,
) -> None:
    bucket.put_many((f"large/{i}", os.urandom(1 << 20)) for i in range(8))
    dataset = MapDataset(bucket)
    asked = dataset.begin
    started: list[int] = []
    came = threading.Event()

    def begin(rows: Any, names: Any) -> Any:
        started.append(len(rows))
        wait = asked(rows, names)
        return lambda: came.wait(30) and wait and wait()

    dataset.begin = begin  # type: ignore[method-assign]
    loop: Any = iter(ThreadLoader(dataset, batch_size=2, threads=4))
    first: list[Any] = []
    taker = threading.Thread(target=lambda: first.append(next(loop)))
    taker.start()
    wait_until(lambda: len(started) == 1, "the first batch is asked for")
    time.sleep(0.3)
    assert started == [2]
    came.set()
    taker.join()
    assert first[0][0] == ("large/0", "large/1")
    assert len(list(loop)) == 3


@pytest.mark.parametrize("threads", COUNTS)
def test_a_prefetched_batch_is_fetched_once(filled: forebay.Bucket, threads: int) -> None:
    dataset = MapDataset(filled)
    loader = ThreadLoader(dataset, batch_size=4, shuffle=True, threads=threads, prefetch=3)
    assert sorted(names(loader)) == NAMES
    # 1, 2, 4 and the last 4 of its 11 batches come together.
    assert (dataset.stats().requests, dataset.stats().objects) == (4, TOTAL)
    for _ in loader:
        break
    assert sorted(names(loader)) == NAMES, "what a loop left behind is not in the way"


def test_prefetched_batches_stay_until_threads_have_taken_them(filled: forebay.Bucket) -> None:
    class Late(MapDataset):
        def __getitems__(self, indices: Any) -> list[Any]:
            # Another thread has seen that no batch is left.
            wait_until(lambda: loader._pass and loader._pass._ended[0], "no batch is left")
            return super().__getitems__(indices)

    dataset = Late(filled)
    loader: Any = ThreadLoader(dataset, batch_size=TOTAL // 3 + 1, threads=4, prefetch=2)
    assert names(loader) == NAMES
    # The first batch came alone, the others together.
    assert (dataset.stats().requests, dataset.stats().objects) == (2, TOTAL)


def test_what_takes_a_thread_of_python_is_left_to_its_turn(filled: forebay.Bucket) -> None:
    dataset = MapDataset(filled, snapshot=True)
    loop = iter(ThreadLoader(dataset, batch_size=4, threads=0))
    assert next(loop)[0] == tuple(NAMES[:4])
    assert dataset.stats().objects == 4
    assert not [t for t in threading.enumerate() if t.name.startswith("forebay-ahead")]


@pytest.mark.parametrize("threads", COUNTS)
def test_of_batches_that_come_together_one_that_fails_does_so_alone(
    filled: forebay.Bucket, threads: int
) -> None:
    batches = [[0], [1, 2], [3, TOTAL], [4], [5, 6], [7], [8]]
    loop = iter(ThreadLoader(MapDataset(filled), batch_sampler=batches, threads=threads))
    assert [next(loop)[0] for _ in range(2)] == [(NAMES[0],), (NAMES[1], NAMES[2])]
    with pytest.raises(IndexError):
        next(loop)
    dataset = MapDataset(filled)
    filled.object(NAMES[6]).delete()
    try:
        loop = iter(ThreadLoader(dataset, batch_sampler=[[n] for n in range(12)], threads=threads))
        assert [next(loop)[0][0] for _ in range(6)] == NAMES[:6]
        with pytest.raises(forebay.NotFound, match="o/06"):
            next(loop)
    finally:
        filled.put_many([(NAMES[6], NAMES[6].encode() * 3)])


def test_an_error_comes_in_its_batchs_place() -> None:
    class Broken(Numbers):
        def __getitem__(self, index: int) -> int:
            if index == 7:
                raise LookupError("seven")
            return super().__getitem__(index)

    for threads in COUNTS:
        seen: list[int] = []
        with pytest.raises(LookupError, match="seven"):
            for batch in ThreadLoader(Broken(20), batch_size=2, threads=threads):
                seen += batch.tolist()
        assert seen == [0, 1, 2, 3, 4, 5]
    wait_until(lambda: loader_threads() == 0, "the threads are gone")


def test_an_error_of_the_sampler_ends_the_loop_after_what_it_gave() -> None:
    def failing() -> Iterator[int]:
        yield from range(4)
        raise LookupError("no more")

    class Failing:
        def __iter__(self) -> Iterator[int]:
            return failing()

        def __len__(self) -> int:
            return 9

    seen = []
    with pytest.raises(LookupError, match="no more"):
        for batch in ThreadLoader(Numbers(9), batch_size=2, sampler=Failing(), threads=2):
            seen.append(batch.tolist())
    assert seen == [[0, 1], [2, 3]]


def test_leaving_the_loop_early_stops_the_threads() -> None:
    loader = ThreadLoader(Numbers(1000), threads=3)
    for _ in loader:
        assert loader_threads() == 3
        break
    wait_until(lambda: loader_threads() == 0, "the threads are gone")
    assert len(list(loader)) == 1000


def test_a_program_that_ends_right_after_leaving_a_loop_ends_well() -> None:
    program = """
import torch
from forebay_torch import ThreadLoader

class Work:
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        return torch.rand(700, 700) @ torch.rand(700, 700)

for _ in ThreadLoader(Work(), batch_size=8, threads=3):
    break
"""
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("threads", COUNTS)
def test_loops_inside_each_other_do_not_disturb_each_other(
    filled: forebay.Bucket, threads: int
) -> None:
    numbers = ThreadLoader(Numbers(6), batch_size=2, threads=threads)
    stream = ThreadLoader(IterableDataset(filled), batch_size=20, threads=threads)
    for loader, length in ((numbers, 3), (stream, 3)):
        assert [len(list(loader)) for _ in loader] == [length] * length


@pytest.mark.parametrize("threads", COUNTS)
def test_a_state_that_is_loaded_ends_the_loop_that_goes_on(threads: int) -> None:
    loader = ThreadLoader(Numbers(10), threads=threads)
    running = iter(loader)
    next(running)
    loader.load_state_dict(loader.state_dict())
    with pytest.raises(RuntimeError, match="given a state while this loop"):
        next(running)
    assert [int(batch) for batch in loader] == list(range(1, 10))


INTERRUPTED = """
import signal, sys, time
from forebay_torch import ThreadLoader
from torch.utils.data import Dataset

# A shell that starts the tests in the background has them ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)

class Slow(Dataset):
    def __len__(self):
        return 10
    def __getitem__(self, index):
        if index > 0:
            print("blocked", flush=True)
            time.sleep({nap})
        return index

for batch in ThreadLoader(Slow(), threads=2):
    pass
"""


def test_ctrl_c_ends_a_loop_that_waits() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED.format(nap=3)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert "blocked" in process.stdout.readline()
    started = time.monotonic()
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert "KeyboardInterrupt" in errors
    assert time.monotonic() - started < 20
    assert process.returncode in (130, -signal.SIGINT, 1)


def test_out_of_order_a_slow_batch_holds_up_nobody() -> None:
    released = threading.Event()

    class OneSlow(Numbers):
        def __getitem__(self, index: int) -> int:
            if index == 0:
                assert released.wait(20)
            return index

    loader = ThreadLoader(OneSlow(8), threads=2, prefetch=8, ordered=False)
    seen = []
    for batch in loader:
        seen.append(int(batch))
        if len(seen) == 7:
            released.set()
    assert sorted(seen) == list(range(8)) and seen[-1] == 0
    with pytest.raises(TypeError, match="ordered=False"):
        loader.state_dict()


def test_another_librarys_iterable_is_read_by_one_thread() -> None:
    class Plain(TorchIterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(7))

    batches = [batch.tolist() for batch in ThreadLoader(Plain(), batch_size=3, threads=4)]
    assert batches == [[0, 1, 2], [3, 4, 5], [6]]


@pytest.mark.parametrize("threads", COUNTS)
@pytest.mark.parametrize("kind", ["shuffle", "sampler", "batches", "iterable"])
def test_a_loop_goes_on_with_any_number_of_threads_or_workers(
    filled: forebay.Bucket, kind: str, threads: int
) -> None:
    def make(count: int) -> ThreadLoader:
        if kind == "iterable":
            dataset = IterableDataset(filled, shuffle=True, seed=1)
            return ThreadLoader(dataset, batch_size=3, threads=count)
        source = MapDataset(filled)
        if kind == "shuffle":
            return ThreadLoader(source, batch_size=3, shuffle=True, seed=1, threads=count)
        if kind == "sampler":
            sampler = DistributedShardSampler(source, seed=1)
            return ThreadLoader(source, batch_size=3, sampler=sampler, threads=count)
        batches = DynamicBatchSampler(source, 40, shuffle=True, seed=1)
        return ThreadLoader(source, batch_sampler=batches, threads=count)

    whole = names(make(0))
    loader = make(threads)
    iterator = iter(loader)
    before = names(next(iterator) for _ in range(5))
    state = loader.state_dict()
    for count in (0, 3):
        resumed = make(count)
        resumed.load_state_dict(state)
        assert before + names(resumed) == whole
        assert len(names(resumed)) == TOTAL, "the epoch after it is whole again"
    if kind == "iterable":
        stream = IterableDataset(filled, shuffle=True, seed=1, batch_size=3)
        stream.load_state_dict(state)
        assert before + names(DataLoader(stream, batch_size=3, num_workers=2)) == whole


def test_stats_of_a_loader_separate_waiting_from_computing() -> None:
    class Slow(Numbers):
        def __getitem__(self, index: int) -> int:
            time.sleep(0.02)
            return index

    waiting = ThreadLoader(Slow(10), batch_size=2, threads=1)
    for _ in waiting:
        pass
    stats = waiting.stats()
    assert (stats.batches, stats.samples) == (5, 10)
    assert stats.wait_s >= 0.15 and stats.wait_fraction > 0.9
    computing = ThreadLoader(Numbers(10), batch_size=2, threads=2)
    for _ in computing:
        time.sleep(0.05)
    assert computing.stats().compute_s >= 0.2
    assert computing.stats().wait_fraction < 0.5


@pytest.mark.parametrize(
    "options,message",
    [
        ({"threads": -1}, "threads must not be negative"),
        ({"prefetch": 0}, "prefetch must be at least 1"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"batch_size": None}, "goes with an iterable dataset"),
        ({"shuffle": True, "sampler": [1]}, "a sampler has its own order"),
        ({"batch_sampler": [[1]], "shuffle": True}, "batch_sampler goes without"),
    ],
)
def test_contradictions_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ThreadLoader(Numbers(3), **options)


def test_a_sampler_without_a_state_says_so() -> None:
    loader = ThreadLoader(Numbers(3), sampler=[2, 1, 0], threads=1)
    assert [int(batch) for batch in loader] == [2, 1, 0]
    with pytest.raises(TypeError, match="list has no state_dict"):
        loader.state_dict()
