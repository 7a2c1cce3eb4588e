"""Runs that are left and resumed: every class that has a state, in every loader, by every way on.

A case is left after some batches, once or more often, and read to the end of the epoch. What all
its runs gave must be what one run gives that is never left.
"""

from __future__ import annotations

import copy
import itertools
import multiprocessing
import pickle
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import forebay
from forebay_torch import (
    BatchIterDataset,
    DataShard,
    DistributedShardSampler,
    DynamicBatchSampler,
    IterableDataset,
    MapDataset,
    MixedDataset,
    MultiShardStream,
    ShardReader,
    ThreadLoader,
)
from shard_files import tar
from torch.utils.data import DataLoader, get_worker_info
from torch.utils.data import IterableDataset as TorchIterableDataset

SIZE = 2
_PROCESS_TIMEOUT_S = 240
_EXIT_TIMEOUT_S = 60
NAMES = [f"o{i:02}" for i in range(57)]
SHARDS = [5, 1, 9, 4, 8, 3, 11, 2, 6, 7, 1]
KINDS = ("iterable", "batches of requests", "shards", "shuffled shards", "mixed", "streams",
         "sampler", "dynamic batches", "plain")  # fmt: skip
LOADERS = ("DataLoader", "StatefulDataLoader", "ThreadLoader", "nodes")
WORKERS = (0, 1, 2, 4)
# How a run gets to its objects: made anew, those of the run before, copies of them, or as arguments
# of another process.
WAYS = ("new", "same", "copy", "deepcopy", "pickle", "fork", "spawn")


class Case(NamedTuple):
    """A case: the dataset, its loader, where passes are interrupted, and how they resume."""

    kind: str
    loader: str
    workers: int
    stops: tuple[int, ...]
    way: str

    @property
    def keeps_order(self) -> bool:
        """Whether all runs together are in the order of one run: streams of shards keep it where
        each worker goes on by itself."""
        if self.kind == "shuffled shards":
            return self.loader == "StatefulDataLoader" and self.workers > 0
        return self.kind != "shards" or self.loader == "StatefulDataLoader" or self.workers < 2


def cases() -> Iterator[Case]:
    """All cases."""
    for kind, loader, workers in itertools.product(KINDS, LOADERS, WORKERS):
        if not _is_possible(kind, loader, workers):
            continue
        most = 2 * workers + 1
        for first, second in itertools.product(range(most), repeat=2):
            yield Case(kind, loader, workers, (first, second), "new")
        for number, way in enumerate(WAYS):
            for first in range(most):
                # A spawned process takes seconds to start. One that is forked beside threads that
                # compute may hang in torch, whatever they compute.
                is_threaded = loader in ("ThreadLoader", "nodes") and workers > 0
                if (way == "spawn" and first not in (0, workers)) or (
                    way == "fork" and is_threaded
                ):
                    continue
                second, third = (first * 3 + number) % most, (first + 2 * number) % most
                yield Case(kind, loader, workers, (first, second, third), way)


def _is_possible(kind: str, loader: str, workers: int) -> bool:
    if kind == "plain":
        return loader == "StatefulDataLoader"
    if kind == "dynamic batches":
        return loader != "nodes"
    return True


def chosen(count: int, seed: int) -> list[Case]:
    """``count`` cases, each kind and loader among them."""
    generator = random.Random(seed)
    every = [case for case in cases() if case.way != "spawn"]
    generator.shuffle(every)
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in every:
        groups.setdefault((case.kind, case.loader), []).append(case)
    turns = itertools.zip_longest(*groups.values())
    return [case for turn in turns for case in turn if case is not None][:count]


def fill(client: forebay.Client, prefix: str) -> list[forebay.Bucket]:
    """The buckets that all cases read."""
    objects, shards = client.bucket(prefix).create(), client.bucket(f"{prefix}-shards").create()
    objects.put_many((name, b"x" * 8) for name in NAMES)
    names = iter(NAMES)
    for number, count in enumerate(SHARDS):
        members = [(f"{next(names)}.txt", b"x") for _ in range(count)]
        shards.object(f"s{number:02}.tar").put(tar(members))
    return [objects, shards]


class Plain(TorchIterableDataset[tuple[str, int]]):
    """A stateful dataset without Forebay, as torchdata documents them."""

    def __iter__(self) -> PlainIterator:
        return PlainIterator()


class PlainIterator:
    """Batches of the names in turn to workers."""

    def __init__(self) -> None:
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        self._mine = [name for at, name in enumerate(NAMES) if at // SIZE % workers == worker]
        self._at = 0

    def __iter__(self) -> PlainIterator:
        return self

    def __next__(self) -> tuple[str, int]:
        if self._at == len(self._mine):
            raise StopIteration
        self._at += 1
        return self._mine[self._at - 1], 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self._at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._at = state["at"]


class Objects(NamedTuple):
    """The dataset of a case, and what has its state."""

    dataset: Any
    owner: Any


def made(kind: str, endpoint: str, prefix: str) -> Objects:
    """New objects."""
    client = forebay.Client(endpoint, timeout=20)
    objects, shards = client.bucket(prefix), client.bucket(f"{prefix}-shards")
    options = {"shuffle": True, "seed": 5, "batch_size": SIZE}
    if kind == "plain":
        dataset: Any = Plain()
    elif kind == "iterable":
        dataset = IterableDataset(objects, **options)
    elif kind == "batches of requests":
        dataset = BatchIterDataset(objects, max_batch_size=5, **options)
    elif kind in ("shards", "shuffled shards"):
        buffer = 7 if kind == "shuffled shards" else 0
        dataset = ShardReader(
            shards, shuffle_shards=True, shuffle_buffer=buffer, seed=5, batch_size=SIZE
        )
    elif kind == "mixed":
        dataset = MixedDataset([MapDataset(objects)] * 2, [0.7, 0.3], seed=5, batch_size=SIZE)
    elif kind == "streams":
        dataset = MultiShardStream([DataShard(shards)] * 2, batch_size=SIZE)
    else:
        dataset = MapDataset(objects)
        if kind == "sampler":
            return Objects(dataset, DistributedShardSampler(dataset, seed=5))
        return Objects(dataset, DynamicBatchSampler(dataset, 20, shuffle=True, seed=5))
    return Objects(dataset, dataset)


class Run:
    """A loader over the objects of a case."""

    def __init__(self, case: Case, objects: Objects, state: Any) -> None:
        self._case = case
        self._objects = objects
        self._taken = 0
        self._loader = self._made()
        if state is not None:
            self.load(state)

    def _made(self) -> Any:
        kind, loader, workers = self._case[:3]
        dataset, owner = self._objects
        if loader == "nodes":
            return _nodes(self._objects, workers)
        options: dict[str, Any] = {"batch_size": SIZE}
        if kind == "sampler":
            options["sampler"] = owner
        elif kind == "dynamic batches":
            options = {"batch_sampler": owner}
        if loader == "ThreadLoader":
            return ThreadLoader(dataset, threads=workers, **options)
        if loader == "DataLoader":
            return DataLoader(dataset, num_workers=workers, **options)
        from torchdata.stateful_dataloader import StatefulDataLoader

        return StatefulDataLoader(dataset, num_workers=workers, **options)

    def load(self, state: Any) -> None:
        """Resumes from a state."""
        owner = self._objects.owner if self._case.loader == "DataLoader" else self._loader
        owner.load_state_dict(state)

    def read(self, batches: int | None) -> tuple[list[str], Any, Any]:
        """The names of the next batches, the state then, and the iterator, which is not at its end."""
        iterator = iter(self._loader)
        taken = list(itertools.islice(iterator, batches))
        names = [name for batch in taken for name in _names(self._case, batch)]
        if self._case.loader != "DataLoader":
            return names, self._loader.state_dict(), iterator
        if self._case.kind == "dynamic batches":
            return names, self._objects.owner.state_dict(num_batches=len(taken)), iterator
        return names, self._objects.owner.state_dict(num_samples=len(names)), iterator


def _nodes(objects: Objects, workers: int) -> Any:
    from torchdata import nodes

    from forebay_torch.nodes import Reader

    if objects.owner is objects.dataset:
        node: Any = Reader(objects.dataset)
    else:
        node = nodes.Mapper(nodes.SamplerWrapper(objects.owner), objects.dataset.__getitem__)
    if workers:
        node = nodes.ParallelMapper(node, _same, num_workers=workers, method="thread")
    return nodes.Loader(nodes.Batcher(node, SIZE, drop_last=False))


def _same(sample: Any) -> Any:
    return sample


def _names(case: Case, batch: Any) -> list[str]:
    if case.kind == "streams":
        rows = batch if case.loader == "nodes" else list(zip(*batch, strict=True))
        return [str(row[0]) for row in rows]
    return [sample[0] for sample in batch] if case.loader == "nodes" else list(batch[0])


def whole(case: Case, endpoint: str, prefix: str) -> list[str]:
    """Returns the samples of one run without an interruption."""
    return Run(case, made(case.kind, endpoint, prefix), None).read(None)[0]


def resumed(case: Case, endpoint: str, prefix: str) -> list[str]:
    """Returns the samples of all runs of a case together."""
    given: list[str] = []
    state: Any = None
    objects = made(case.kind, endpoint, prefix)
    run: Run | None = None
    # A pass that was left stays alive while the next one goes on.
    left = []
    for stop in (*case.stops, None):
        if case.way in ("fork", "spawn") and state is not None:
            names, state = _elsewhere(case, objects, state, stop)
            given += names
            continue
        if case.way == "same" and run is not None:
            run.load(state)
        else:
            objects = _carried(case, objects, endpoint, prefix) if run is not None else objects
            run = Run(case, objects, state)
        names, state, iterator = run.read(stop)
        state = pickle.loads(pickle.dumps(state))
        given += names
        left.append(iterator)
    return given


def _carried(case: Case, objects: Objects, endpoint: str, prefix: str) -> Objects:
    if case.way == "new":
        return made(case.kind, endpoint, prefix)
    if case.way == "pickle":
        return pickle.loads(pickle.dumps(objects))  # type: ignore[no-any-return]
    if case.way == "deepcopy":
        return copy.deepcopy(objects)
    is_one = objects.owner is objects.dataset
    dataset = copy.copy(objects.dataset)
    return Objects(dataset, dataset if is_one else copy.copy(objects.owner))


def _elsewhere(
    case: Case, objects: Objects, state: Any, stop: int | None
) -> tuple[list[str], Any]:
    """One run in another process, which gets the objects as arguments."""
    context: Any = multiprocessing.get_context(case.way)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run_there, args=(sender, case, objects, state, stop))
    process.start()
    sender.close()
    try:
        if not receiver.poll(_PROCESS_TIMEOUT_S):
            raise TimeoutError("the other process does not answer")
        answer = receiver.recv()
    finally:
        process.join(_EXIT_TIMEOUT_S)
        if process.is_alive():
            process.kill()
            process.join()
    if process.exitcode != 0:
        raise ChildProcessError(f"the other process ended with {process.exitcode}")
    return answer  # type: ignore[no-any-return]


def _run_there(sender: Any, case: Case, objects: Objects, state: Any, stop: int | None) -> None:
    names, state, iterator = Run(case, objects, state).read(stop)
    sender.send((names, state))
    del iterator
