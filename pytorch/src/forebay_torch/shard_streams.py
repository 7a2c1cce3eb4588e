"""Shards opened one by one, and the samples that are read from them."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Literal

from forebay import ShardStream
from forebay_torch.base_iter_dataset import BaseIterDataset
from forebay_torch.cluster_prefetch import prefetch_from_cloud
from forebay_torch.dataset_pass import Pass
from forebay_torch.fields import Fields
from forebay_torch.in_memory_shard import InMemoryShard
from forebay_torch.object_index import ObjectIndex
from forebay_torch.policy import NEVER_SKIPPED, stopped
from forebay_torch.progress import Progress
from forebay_torch.shard_options import Decode, OnError, decoded
from forebay_torch.shard_plan import Item

__all__ = ["ShardStreams"]

Opened = ShardStream | InMemoryShard


class ShardStreams(BaseIterDataset):
    """The part of a dataset over shards that opens them one by one and reads their samples."""

    _show_progress: bool
    _decode: Decode | None
    _keys: Literal["webdataset", "basename"]
    _lowercase: bool
    _fill: Any
    _on_error: OnError
    _handler: Callable[[Exception], bool] | None
    _read_ahead: int

    @property
    @abstractmethod
    def _counts_late(self) -> bool:
        """Whether samples count when they are handed out, rather than when they are read."""

    def _samples(self, made: Pass, items: Iterable[Item]) -> Iterator[tuple[str, Any]]:
        with Progress(self._show_progress, self._worker_name()) as progress:
            for item, stream in self._streams(items):
                progress.begin(stream.uri)
                if item.samples is None and self._decode is None:
                    samples = self._read_as_is(made, stream)
                else:
                    samples = self._read(made, stream, item.samples)
                yield from progress.counted(samples)

    def _streams(self, items: Iterable[Item]) -> Iterator[tuple[Item, Opened]]:
        """The shards one by one, each opened when the one before it is started."""
        waiting: tuple[Item, Opened] | None = None
        due = [item.row for item in items] if isinstance(items, list) else []
        with prefetch_from_cloud(self._index, due, self._warm_ahead) as prefetcher:
            for number, item in enumerate(items, 1):
                prefetcher.reached(number)
                opened = self._open(item.row)
                if waiting is not None:
                    yield waiting
                waiting = (item, opened)
            if waiting is not None:
                yield waiting

    def _open(self, row: int) -> Opened:
        """The samples of a shard: as it is stored, or as a transform makes it."""
        shard = self._index.object(row)
        if self._etl_name:
            load = partial(_whole_shard, self._index, row)
            return InMemoryShard(shard.uri, load, self._keys, self._lowercase)
        return shard.samples(
            keys=self._keys, lowercase=self._lowercase, read_ahead=self._read_ahead
        )

    def _read_as_is(self, made: Pass, stream: Opened) -> Iterator[tuple[str, Any]]:
        """As ``_read``, of all samples with their contents as they are: little is done for each."""
        deliver = None if self._counts_late else made.deliver
        uri = stream.uri
        like = Fields(None, self._fill, "", uri)
        while True:
            try:
                while run := _next_run(stream, like):
                    for sample in run:
                        if deliver is not None:
                            deliver()
                        yield sample
                return
            except Exception as error:
                if not self._failed(uri, error):
                    return

    def _read(
        self, made: Pass, stream: Opened, numbers: Sequence[int] | None
    ) -> Iterator[tuple[str, Any]]:
        wanted = numbers if numbers is None or isinstance(numbers, range) else frozenset(numbers)
        last = None if numbers is None else numbers[-1]
        number = 0
        while last is None or number <= last:
            name, sample = stream.uri, None
            try:
                key, parts = next(stream)
                name = f"{stream.uri}/{key}"
                number += 1
                if wanted is None or number - 1 in wanted:
                    fields = Fields(parts, self._fill, key, stream.uri)
                    sample = (key, decoded(key, fields, self._decode))
            except StopIteration:
                return
            except Exception as error:
                if not self._failed(name, error):
                    return
                if name != stream.uri and not self._counts_late:
                    # It has its place in the order, though nobody gets it.
                    made.deliver()
            if sample is not None:
                if not self._counts_late:
                    made.deliver()
                yield sample
        stream.close()

    def _failed(self, name: str, error: Exception) -> bool:
        """Whether to go on with the shard after this failure; raises it where that is asked."""
        try:
            if self._handler is not None:
                return bool(self._handler(error))
            if callable(self._on_error):
                self._on_error(name, error)
                return True
        except StopIteration as stop:
            called = "on_error" if self._handler is None else "handler"
            raise stopped(called, repr(name)) from stop
        if self._on_error == "raise" or isinstance(error, NEVER_SKIPPED):
            raise error
        warnings.warn(f"left out of {name}: {error}", stacklevel=2)
        return True

def _next_run(stream: Opened, like: Fields) -> list[tuple[str, dict[str, Any]]]:
    """The samples that are there, at least one, with parts as Fields; none at the end."""
    if isinstance(stream, ShardStream):
        return stream.next_run(like)
    return [(key, Fields(parts, like.fill, key, like.url)) for key, parts in islice(stream, 1)]


def _whole_shard(index: ObjectIndex, row: int) -> memoryview:
    return index.get_many([row])[0]
