"""Batches by size, or by any other cost: as many samples as fit in a limit."""

from __future__ import annotations

import copy
import hashlib
import time
import warnings
from abc import ABCMeta
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import BatchSampler

from forebay import Listing, ObjectEntry
from forebay_torch import frameworks, order
from forebay_torch.batch_packing import BatchCost, PackedBatches
from forebay_torch.order import EqualLength
from forebay_torch.resumable_sampler import ResumableSampler

__all__ = ["DynamicBatchSampler"]


class _Remade:
    """Stands for ``batch_size`` of a sampler that Lightning makes again to put a sampler into it."""

    def __init__(self, sampler: DynamicBatchSampler) -> None:
        self._sampler = sampler

    def sampler(self, drop_last: bool) -> DynamicBatchSampler:
        """The sampler itself, which shares its batches among ranks already; or one like it that
        leaves out the last batch, or does not."""
        if drop_last == self._sampler.drop_last:
            return self._sampler
        twin = copy.copy(self._sampler)
        twin._drop_last, twin._plan = drop_last, None
        return twin


class _Remaking(ABCMeta):
    """Makes samplers, also by the call by which Lightning makes a batch sampler again:
    ``type(batch_sampler)(sampler, batch_size=batch_sampler.batch_size, drop_last=...)``."""

    def __call__(cls, *args: Any, **options: Any) -> Any:
        size = options.get("batch_size")
        if isinstance(size, _Remade):
            return size.sampler(bool(options.get("drop_last")))
        made = super().__call__(*args, **options)
        # By the arguments that Lightning noted it would make a sampler without the state of this one.
        for name in [name for name in vars(made) if name.startswith("__pl_saved_")]:
            object.__delattr__(made, name)
        return made


class DynamicBatchSampler(ResumableSampler[list[int]], BatchSampler, metaclass=_Remaking):
    """Batches of indices whose samples together cost at most ``max_batch_size``.

    The cost of a sample is its size in bytes, or what ``cost_fn`` says. Samples are taken in order
    and a batch ends before the first that does not fit. ``len()`` is the number of batches of the
    epoch on this rank. The work is linear in the number of samples and looks at nothing but the
    listing of the dataset.

    Batch ``b`` of an epoch is rank ``b % world_size``'s: all ranks make the same batches and have
    equally many of them. Every pass over the sampler is a new epoch; ``set_epoch`` chooses it.

    It is a ``torch.utils.data.BatchSampler``. Lightning leaves its batches as they are. Under
    accelerate, which shares batches among ranks by itself, it gives all batches to each rank.

    Args:
        data_source: A dataset with ``objects``, such as every BaseMapDataset.
        max_batch_size: Most bytes in a batch; a batch that fits exactly is full.
        drop_last: Leave out the last batch unless it fills more than ``saturation_factor`` of
            ``max_batch_size``.
        allow_oversized_samples: Give a sample larger than ``max_batch_size`` a batch of its own,
            instead of leaving it out with a warning.
        saturation_factor: From 0 to 1; see ``drop_last``.
        shuffle: Take samples in an order of the epoch's own.
        seed: Of the shuffle.
        cost_fn: Called once for each object, with ``name`` and ``size``; returns what it costs, in
            the unit of ``max_batch_size``: tokens, seconds, pixels.
        padded: A batch costs its dearest sample's cost times the number of its samples, as it does
            when all are padded to the longest.
        bucketing: Into how many groups of similar cost the samples go; a batch is from one of
            them. Batches come in the order in which their last samples do.
        max_samples: Most samples in a batch.
        keep_empty: Whether samples that cost nothing are kept.
        time_slice: Seconds that a batch may be in the making, where ``cost_fn`` is slow: the batch
            then ends with what it has. Needs one rank; there is no ``len()``, and no state.
        rank: Which rank this is; by default asked of ``torch.distributed``.
        world_size: How many there are; goes with ``rank``.
        equal_length: How ranks get equally many batches, as for DistributedShardSampler: the first
            batches come again at the end (``wrap``), or the last few are left out (``drop``).
        replication: As for DistributedShardSampler.

    Raises:
        ValueError: A limit or factor makes no sense.

    Example:
        Ten objects of 1 MB at ``max_batch_size=4_000_000`` make batches of 4, 4 and 2. Texts that
        are padded to the longest of their batch, at most 4096 tokens:

        >>> sampler = DynamicBatchSampler(
        ...     dataset, 4096, cost_fn=lambda entry: tokens[entry.name], padded=True, bucketing=10
        ... )
    """

    def __init__(
        self,
        data_source: Any,
        max_batch_size: float,
        drop_last: bool = False,
        allow_oversized_samples: bool = False,
        saturation_factor: float = 0.8,
        shuffle: bool = False,
        *,
        seed: int = 0,
        cost_fn: Callable[[ObjectEntry], float] | None = None,
        padded: bool = False,
        bucketing: int = 0,
        max_samples: int | None = None,
        keep_empty: bool = True,
        time_slice: float | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        equal_length: EqualLength = "wrap",
        replication: int = 1,
    ) -> None:
        if not max_batch_size > 0:
            raise ValueError(f"max_batch_size must be positive, not {max_batch_size!r}")
        if not 0 <= saturation_factor <= 1:
            raise ValueError(
                f"saturation_factor must be between 0 and 1, not {saturation_factor!r}"
            )
        if max_samples is not None and max_samples < 1:
            raise ValueError(f"max_samples must be at least 1, not {max_samples}")
        if bucketing < 0:
            raise ValueError(f"bucketing must not be negative: {bucketing}")
        if time_slice is not None and not time_slice > 0:
            raise ValueError(f"time_slice is a positive number of seconds, not {time_slice!r}")
        super().__init__(
            shuffle=shuffle,
            seed=seed,
            rank=rank,
            world_size=world_size,
            equal_length=equal_length,
            replication=replication,
            source=data_source,
        )
        if time_slice is not None and (bucketing or self._rank_and_world()[1] > 1):
            raise ValueError("time_slice goes with one rank and without bucketing")
        self._limit = self.max_batch_size = max_batch_size
        self._drop_last = drop_last
        self._allow_oversized = allow_oversized_samples
        self._saturation = saturation_factor
        self._cost_fn = cost_fn
        self._padded = padded
        self._bucketing = bucketing
        self._max_samples = max_samples
        self._keep_empty = keep_empty
        self._time_slice = time_slice
        self._known_costs: torch.Tensor | None = None
        self._costs_digest = ""
        self._plan: tuple[tuple[int, int], PackedBatches] | None = None

    def __iter__(self) -> Iterator[list[int]]:
        return super().__iter__() if self._time_slice is None else self._timed()

    @property
    def sampler(self) -> DynamicBatchSampler:  # type: ignore[override]
        """The sampler itself: frameworks look here for what has ``set_epoch``."""
        return self

    @property
    def drop_last(self) -> bool:  # type: ignore[override]
        """Whether a last batch that is not full enough is left out."""
        return self._drop_last

    @property
    def batch_size(self) -> Any:  # type: ignore[override]
        """Not there, for batches have different lengths."""
        if frameworks.is_called_by_lightning():
            return _Remade(self)
        raise AttributeError(f"{type(self).__name__} has batches of different lengths")

    def __len__(self) -> int:
        """The number of batches of this rank in the epoch under way, or in the first."""
        self._refuse_timed("len()")
        return super().__len__()

    def state_dict(self, num_batches: int | None = None) -> dict[str, Any]:
        """How far the pass under way is, as a few numbers that any shape of job goes on from.

        Args:
            num_batches: How many batches of this rank the training loop has taken in this pass. A
                plain DataLoader with workers asks for batches ahead of the loop, so that the
                sampler cannot know; a StatefulDataLoader can.
        """
        self._refuse_timed("state")
        state = self._state(num_batches)
        # The total is of batches.
        return {**state, "listed": len(self._view_of(num_batches)._source.objects)}

    def _objects_in(self, state: Mapping[str, Any]) -> int:
        if "listed" not in state:
            raise ValueError(
                f'{type(self).__name__}: data="listed" needs a state that says how many objects were '
                "listed; this one was saved by an earlier version"
            )
        return int(state["listed"])

    def _read(self, source: Any) -> None:
        super()._read(source)
        self._known_costs = self._plan = None

    def _refuse_timed(self, what: str) -> None:
        if self._time_slice is not None:
            raise TypeError(f"a sampler with a time_slice has no {what}: its batches depend on time")

    def _total(self, epoch: int) -> int:
        return len(self._batches(epoch))

    def _entries(self, epoch: int, numbers: Sequence[int]) -> Iterable[list[int]]:
        found = frameworks.splitter()
        if found is not None and found.is_dispatcher:
            raise ValueError(
                f"{type(self).__name__}: {found.name} cuts batches of different lengths into equal "
                "parts and loses what is left; set dispatch_batches=False"
            )
        batches = self._batches(epoch)
        self._warn(batches)
        return map(batches.batch, numbers)

    def _fingerprint(self) -> str:
        if self._cost_fn is not None:
            self._costs()
        return self._prints.of(
            self._source.objects,
            self._shuffle,
            self._limit,
            self._drop_last and self._saturation,
            self._allow_oversized,
            self._padded,
            self._bucketing,
            self._max_samples,
            self._keep_empty,
            self._costs_digest,
        )

    def _batches(self, epoch: int) -> PackedBatches:
        """The batches of all ranks in an epoch."""
        key = (epoch if self._shuffle else 0, len(self._source.objects))
        if self._plan is None or self._plan[0] != key:
            self._plan = (key, self._make(epoch))
        return self._plan[1]

    def _make(self, epoch: int) -> PackedBatches:
        costs = self._costs()
        indices = self._indices(epoch)
        if self._shuffle:
            costs = costs[indices]
        if not self._keep_empty:
            indices, costs = indices[costs > 0], costs[costs > 0]
        fits = costs <= self._limit
        whole = bool(fits.all())
        positions = torch.arange(len(costs)) if whole else torch.nonzero(fits).flatten()
        groups = self._groups(positions, costs)
        parts = [(group, self._fill(costs[group])) for group in groups]
        if not whole:
            oversized = torch.nonzero(~fits).flatten()
            if self._allow_oversized:
                parts.append((oversized, array("q", range(1, len(oversized) + 1))))
            else:
                first = int(indices[oversized[0]])
                return PackedBatches.merged(parts, indices, len(oversized), first)
        return PackedBatches.merged(parts, indices)

    def _groups(self, positions: torch.Tensor, costs: torch.Tensor) -> list[torch.Tensor]:
        """The positions, or those of each bucket; in order."""
        if self._bucketing < 2 or not len(positions):
            return [positions]
        by_cost = torch.argsort(costs[positions], stable=True)
        chunks = torch.tensor_split(by_cost, min(self._bucketing, len(positions)))
        return [positions[torch.sort(chunk).values] for chunk in chunks]

    def _fill(self, costs: torch.Tensor) -> array[int]:
        """Returns the end of each batch of these samples, none of which is too large alone."""
        ends = array("q")
        total, most = len(costs), self._max_samples or len(costs)
        if total == 0:
            return ends
        if self._padded or costs.dtype != torch.int64:
            filled = self._fill_one_by_one(costs.tolist(), most, ends)
        else:
            # A flat array: a Python int is made only of what is looked at.
            sums = array("q", bytes(8 * total))
            torch.cumsum(costs, 0, out=torch.frombuffer(sums, dtype=torch.int64))
            start, before = 0, 0
            while start < total:
                end = min(bisect_right(sums, before + self._limit, lo=start), start + most)
                filled = sums[end - 1] - before
                ends.append(end)
                start, before = end, sums[end - 1]
        if self._drop_last and not filled / self._limit > self._saturation:
            ends.pop()
        return ends

    def _fill_one_by_one(self, costs: list[float], most: int, ends: array[int]) -> float:
        """As ``_fill``, for costs that do not just add up; returns that of the last batch."""
        filling = BatchCost(self._padded)
        for number, own in enumerate(costs):
            if filling.samples and (
                filling.samples == most or filling.cost_with(own) > self._limit
            ):
                ends.append(number)
                filling = BatchCost(self._padded)
            filling.add(own)
        ends.append(len(costs))
        return filling.cost

    def _timed(self) -> Iterator[list[int]]:
        """Batches that end when their time is over, too."""
        if frameworks.splitter() is not None or self._rank_and_world()[1] > 1:
            raise ValueError("a sampler with a time_slice goes with one rank: its batches differ")
        epoch = self._begin().epoch
        objects, limit = self._source.objects, self._limit
        slice_s = self._time_slice or 0.0
        batch: list[int] = []
        filling, due = BatchCost(self._padded), time.monotonic() + slice_s
        for index in self._indices(epoch).tolist():
            name, size = objects[index]
            own = size if self._cost_fn is None else self._cost_fn(ObjectEntry(name, size))
            if own > limit and not self._allow_oversized:
                self._warn_of(name, own, 0)
                continue
            if own == 0 and not self._keep_empty:
                continue
            if batch and (filling.cost_with(own) > limit or len(batch) == self._max_samples):
                yield batch
                batch, filling, due = [], BatchCost(self._padded), time.monotonic() + slice_s
            batch.append(index)
            filling.add(own)
            if time.monotonic() >= due:
                yield batch
                batch, filling, due = [], BatchCost(self._padded), time.monotonic() + slice_s
        if batch and (not self._drop_last or filling.cost / limit > self._saturation):
            yield batch

    def _indices(self, epoch: int) -> torch.Tensor:
        total = len(self._source.objects)
        return order.epoch_order(total, self._seed, epoch) if self._shuffle else torch.arange(total)

    def _costs(self) -> torch.Tensor:
        """Returns the cost of each sample: int64 bytes, or float64 of ``cost_fn``."""
        objects = self._source.objects
        if self._cost_fn is None:
            if isinstance(objects, Listing) and len(objects):
                return torch.frombuffer(objects.sizes, dtype=torch.int64)
            return torch.tensor([size for _, size in objects], dtype=torch.int64)
        if self._known_costs is None or len(self._known_costs) != len(objects):
            known = [float(self._cost_fn(ObjectEntry(name, size))) for name, size in objects]
            for (name, _), cost in zip(objects, known, strict=True):
                if not cost >= 0:
                    raise ValueError(f"cost_fn says that {name!r} costs {cost}; it must be >= 0")
            self._known_costs = torch.tensor(known, dtype=torch.float64)
            self._costs_digest = hashlib.blake2b(array("d", known), digest_size=8).hexdigest()
        return self._known_costs

    def _warn(self, batches: PackedBatches) -> None:
        if batches.left_out:
            name, _ = self._source.objects[batches.first_left_out]
            cost = self._costs()[batches.first_left_out].item()
            self._warn_of(name, cost, batches.left_out - 1)

    def _warn_of(self, name: str, cost: float, more: int) -> None:
        others = f" and {more} more" if more else ""
        costs = f"{cost} bytes" if self._cost_fn is None else f"cost {cost}"
        warnings.warn(
            f"left out {name!r} ({costs}){others}: larger than max_batch_size {self._limit}; "
            "allow_oversized_samples=True gives each a batch of its own",
            stacklevel=5,
        )
