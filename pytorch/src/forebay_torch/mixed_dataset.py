"""Several datasets as one, in proportions."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from torch.utils.data import IterableDataset as TorchIterableDataset

from forebay_torch import dist, frameworks, order
from forebay_torch.aio import AsyncSamples
from forebay_torch.cursor import Cursor
from forebay_torch.dataset_pass import Pass
from forebay_torch.order import EqualLength
from forebay_torch.resumable import Resumable
from forebay_torch.saved_listing import refuse_listed

__all__ = ["MixedDataset"]

# Samples are fetched this many at a time, of all datasets together.
_GROUP_SAMPLES = 64


class MixedDataset(Resumable, AsyncSamples, TorchIterableDataset[Any]):
    """Samples of several map-style datasets, mixed by weights into one epoch.

    Position by position, the epoch's order names a dataset and a sample of it. Each dataset is gone
    through in an order of its own and started again, in a new order, when it is used up; no sample of
    it comes a second time before all others came once. Ranks and workers share the positions as
    they do those of IterableDataset, with the same exact resume.

    Args:
        datasets: Map-style datasets, such as MapDataset or ShardMapDataset.
        weights: The share of the samples that each gives, in any unit; by default as many as it has.
        epoch_size: Samples in an epoch; by default as many as the datasets have together.
        batching_method: ``random``: each position is drawn; ``stratified``: shares are kept in
            every stretch of the epoch, as evenly as can be; ``per_stream``: each batch of
            ``batch_size`` samples is of one dataset.
        shuffle: Whether samples of a dataset come in random order.
        seed: Of the draws and the shuffles.
        return_stream: Hand out ``(number of the dataset, sample)``.
        batch_size: Of the loader: with it, workers deliver batches in the epoch's order.
        shard_by_rank: As for BaseIterDataset, with ``rank``, ``world_size`` and ``equal_length``.

    Raises:
        ValueError: Weights, sizes or datasets make no sense.

    Example:
        >>> mixed = MixedDataset([web, books], weights=[0.9, 0.1], batch_size=32)
        >>> loader = DataLoader(mixed, batch_size=32, num_workers=4)
    """

    def __init__(
        self,
        datasets: Sequence[Any],
        weights: Sequence[float] | None = None,
        *,
        epoch_size: int | None = None,
        batching_method: Literal["random", "stratified", "per_stream"] = "random",
        shuffle: bool = True,
        seed: int = 0,
        return_stream: bool = False,
        batch_size: int = 1,
        shard_by_rank: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
        equal_length: EqualLength = "none",
    ) -> None:
        self._datasets = list(datasets)
        self._lengths = [len(dataset) for dataset in datasets]
        if not self._lengths or min(self._lengths) == 0:
            raise ValueError(f"MixedDataset needs datasets with samples, not of {self._lengths}")
        chosen: Sequence[float] = self._lengths if weights is None else list(weights)
        if len(chosen) != len(self._lengths):
            raise ValueError(f"{len(chosen)} weights for {len(self._lengths)} datasets")
        if not all(weight >= 0 for weight in chosen) or not 0 < sum(chosen) < float("inf"):
            raise ValueError(f"weights are not negative, and one is positive: {list(chosen)}")
        if batching_method not in ("random", "stratified", "per_stream"):
            raise ValueError(
                'batching_method is "random", "stratified" or "per_stream", not '
                f"{batching_method!r}"
            )
        if epoch_size is not None and epoch_size < 0:
            raise ValueError(f"epoch_size must not be negative: {epoch_size}")
        self._weights = [weight / sum(chosen) for weight in chosen]
        self._size = sum(self._lengths) if epoch_size is None else epoch_size
        self._method = batching_method
        self._shuffle = shuffle
        self._seed = seed
        self._return_stream = return_stream
        self._shard_by_rank = shard_by_rank
        self._rank = dist.checked_rank("MixedDataset", rank, world_size)
        self._cursor = Cursor("MixedDataset", seed, batch_size, equal_length)
        self._prints = [order.Fingerprint() for _ in datasets]

    def __len__(self) -> int:
        return self._cursor.length(self._size, self._ranks())

    def __iter__(self) -> Iterator[Any]:
        return frameworks.checked("MixedDataset", self._samples(self._cursor.open()))

    def _samples(self, made: Pass) -> Iterator[Any]:
        ranks = self._ranks()
        mine = self._cursor.share(made, self._size, ranks)
        streams = self._streams(made.epoch, ranks[1])
        rows = self._rows(streams, made.epoch)
        for start in range(0, len(mine), _GROUP_SAMPLES):
            group = mine[start : start + _GROUP_SAMPLES]
            for position, sample in zip(group, self._fetch(group, streams, rows), strict=True):
                made.deliver()
                yield (streams[position], sample) if self._return_stream else sample

    def state_dict(self, num_samples: int | None = None) -> dict[str, Any]:
        """As that of IterableDataset."""
        return self._cursor.state(num_samples, self._size, self._ranks()[1], self._fingerprint())

    def load_state_dict(
        self, state: Mapping[str, Any], *, data: Literal["same", "listed"] = "same"
    ) -> None:
        """As that of IterableDataset; with ``per_stream``, batches of all ranks together must be
        as large as they were. ``data="listed"`` takes no datasets that grew: lengths make the order."""
        fingerprint = self._fingerprint()
        refuse_listed("MixedDataset", data, state, self._size, fingerprint)
        self._cursor.load(state, self._size, self._ranks()[1], fingerprint)

    def _ranks(self) -> tuple[int, int]:
        return dist.ranks("MixedDataset", self._rank) if self._shard_by_rank else (0, 1)

    def _fingerprint(self) -> str:
        known = [
            prints.of(getattr(dataset, "objects", dataset))
            for prints, dataset in zip(self._prints, self._datasets, strict=True)
        ]
        step = self._step(self._ranks()[1])
        settings = (known, self._weights, self._method, self._shuffle, step)
        return order.Fingerprint().of(range(self._size), settings)

    def _step(self, world_size: int) -> int:
        """How many positions in a row are of one dataset."""
        return self._cursor.block * world_size if self._method == "per_stream" else 1

    def _streams(self, epoch: int, world_size: int) -> array[int]:
        """The number of the dataset for each position of an epoch."""
        step = self._step(world_size)
        turns = -(-self._size // step)
        generator = random.Random(repr(("streams", self._seed, epoch)))
        drawn = array("I")
        if self._method == "stratified":
            # The stream furthest behind its share is next; the first one is drawn.
            behind = [generator.random() * weight for weight in self._weights]
            for _ in range(turns):
                behind = [b + w for b, w in zip(behind, self._weights, strict=True)]
                furthest = max(range(len(behind)), key=behind.__getitem__)
                behind[furthest] -= 1
                drawn.append(furthest)
        else:
            numbers = range(len(self._weights))
            drawn.extend(generator.choices(numbers, self._weights, k=turns))
        if step == 1:
            return drawn
        return array("I", (number for number in drawn for _ in range(step)))[: self._size]

    def _rows(self, streams: array[int], epoch: int) -> array[int]:
        """The number of the sample in its dataset for each position of an epoch."""
        rounds = [0] * len(self._lengths)
        left: list[Iterator[int]] = [iter(()) for _ in self._lengths]
        rows = array("Q")
        for number in streams:
            row = next(left[number], None)
            if row is None:
                left[number] = self._round(number, epoch, rounds[number])
                rounds[number] += 1
                row = next(left[number])
            rows.append(row)
        return rows

    def _round(self, number: int, epoch: int, turn: int) -> Iterator[int]:
        """The order in which a dataset is gone through for the n-th time in an epoch."""
        length = self._lengths[number]
        if not self._shuffle:
            return iter(range(length))
        seed = random.Random(repr((self._seed, number, turn))).getrandbits(63)
        return iter(order.epoch_order(length, seed, epoch).tolist())

    def _fetch(
        self, group: Sequence[int], streams: array[int], rows: array[int]
    ) -> list[Any]:
        """The samples at these positions: one call of each dataset for all that it has there."""
        wanted: dict[int, list[int]] = {}
        for turn, position in enumerate(group):
            wanted.setdefault(streams[position], []).append(turn)
        samples: list[Any] = [None] * len(group)
        for number, turns in wanted.items():
            dataset = self._datasets[number]
            indices = [rows[group[turn]] for turn in turns]
            fetch = getattr(dataset, "__getitems__", None)
            found = fetch(indices) if fetch else [dataset[index] for index in indices]
            for turn, sample in zip(turns, found, strict=True):
                samples[turn] = sample
        return samples
