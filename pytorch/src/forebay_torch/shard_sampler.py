"""Samplers that can be left at any step and gone on with by another number of ranks."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

from torch.utils.data import Sampler
from torch.utils.data.distributed import DistributedSampler

from forebay_torch import order, outside, place
from forebay_torch.order import EqualLength, Fingerprint
from forebay_torch.resume import make_state, read_state

__all__ = ["DistributedShardSampler", "ResumableSampler"]

T = TypeVar("T")


class _Given:
    """One pass over a sampler: where it began, and how many entries it gave."""

    __slots__ = ("epoch", "base", "given", "mark", "is_split")

    def __init__(self, epoch: int, base: int) -> None:
        # Whether a framework shares the entries among ranks.
        self.is_split = outside.splitter() is not None
        self.epoch = epoch
        self.base = base
        self.given = 0
        # What was given when the next pass was given another epoch; -1 for never.
        self.mark = -1


class ResumableSampler(Sampler[T], ABC):
    """An order of entries, dealt out over ranks, with a state.

    A subclass says what the entries of an epoch are. An entry is a sample, or a whole batch.
    """

    def __init__(
        self,
        *,
        shuffle: bool,
        seed: int,
        rank: int | None,
        world_size: int | None,
        equal_length: EqualLength,
        replication: int = 1,
    ) -> None:
        owner = type(self).__name__
        self._replication = place.checked_replication(owner, replication)
        order.check_equal_length(owner, equal_length)
        self._rank = place.checked_rank(owner, rank, world_size)
        self._equal: EqualLength = equal_length
        self._shuffle = shuffle
        self._seed = seed
        self._prints = Fingerprint()
        self._epoch = 0
        # Epoch and beginning of the next pass; None: the epoch after the latest one.
        self._next: tuple[int, int] | None = (0, 0)
        self._latest: _Given | None = None
        # The epoch of whose end a state was loaded, until the next epoch begins.
        self._over: int | None = None

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order of the next pass; that of a state just loaded keeps its place, and the
        pass under way stays as it is."""
        if epoch == self._over:
            self._next = (epoch, self._total(epoch))
        elif self._next is None or self._next[0] != epoch:
            self._next = (epoch, 0)
        if self._latest is not None and self._latest.epoch != epoch:
            self._latest.mark = self._latest.given
        self._epoch = epoch
        self._over = None

    def __iter__(self) -> Iterator[T]:
        # A DataLoader makes iterators that it never reads from: a pass begins with its first entry.
        made = self._begin()
        for entry in self._entries(made.epoch, self._mine(made.epoch, made.base)):
            made.given += 1
            yield entry

    def _begin(self) -> _Given:
        """Begins the next pass. One that its loader drops is begun a second time."""
        outside.refuse_unloaded_state(type(self).__name__)
        self._epoch, start = self._coming()
        if outside.is_pass_dropped():
            self._next = (self._epoch, start)
        else:
            self._next = self._over = None
        self._latest = _Given(self._epoch, start)
        return self._latest

    def _coming(self) -> tuple[int, int]:
        """Epoch and beginning of the next pass."""
        if self._next is not None:
            return self._next
        return self._epoch + 1, 0

    def __copy__(self) -> Self:
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__, _latest=copy.copy(self._latest))
        return twin

    def __len__(self) -> int:
        """The entries of this rank in a whole epoch: the one under way, or the first."""
        rank, world_size = self._rank_and_world()
        return order.count(
            self._total(self._epoch),
            rank=rank,
            world_size=world_size,
            equal_length=self._equal_now(),
        )

    def _equal_now(self) -> EqualLength:
        """How ranks become equally long: no entry comes twice where Lightning predicts."""
        return "none" if outside.is_predicting() else self._equal

    def _state(self, given: int | None) -> dict[str, Any]:
        """The state after so many entries of the pass under way."""
        if given is not None and given < 0:
            raise ValueError(f"{type(self).__name__}: {given} are fewer than none")
        if given is None and self._latest is not None and self._latest.is_split:
            raise ValueError(
                f"{type(self).__name__}: a framework shares the entries among ranks and reads ahead; "
                "say how many of them this rank has taken in this pass"
            )
        world_size = self._rank_and_world()[1]
        latest = self._latest
        if latest is not None and (given or latest.mark != latest.given):
            epoch, base = latest.epoch, latest.base
            given = latest.given if given is None else given
        else:
            epoch, base = self._coming()
        return make_state(
            epoch=epoch,
            seed=self._seed,
            consumed=base + (given or 0) * world_size,
            total=self._total(epoch),
            fingerprint=self._fingerprint(),
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next pass go on where the state says; the one after it is whole again.

        Any number of ranks may go on; each loads the same state, that of rank 0. A state saved at
        the end of an epoch goes on with the next.

        Raises:
            ValueError: The state is of other data, of another order or of another seed.
        """
        total = self._total(state.get("epoch", 0))
        self._epoch, consumed = read_state(
            type(self).__name__,
            state,
            seed=self._seed,
            total=total,
            fingerprint=self._fingerprint(),
        )
        self._over = None
        # Ranks and loaders may leave out the last entries of an epoch.
        is_over = total <= consumed or outside.is_loading_finished_pass()
        if total > 0 and consumed > 0 and is_over:
            self._over, self._epoch, consumed = self._epoch, self._epoch + 1, 0
        self._next = (self._epoch, consumed)
        self._latest = None

    def _mine(self, epoch: int, start: int) -> Sequence[int]:
        """Numbers of this rank's entries from ``start`` on."""
        rank, world_size = self._rank_and_world()
        return order.share(
            self._total(epoch),
            rank=rank,
            world_size=world_size,
            start=start,
            equal_length=self._equal_now(),
        )

    def _rank_and_world(self) -> tuple[int, int]:
        owner = type(self).__name__
        return place.replicated(owner, place.ranks(owner, self._rank), self._replication)

    def order_ahead(self) -> list[T]:
        """What the next pass, or the one under way, gives from its beginning on; nothing moves."""
        epoch, start = self._coming()
        return list(self._entries(epoch, self._mine(epoch, start)))

    @abstractmethod
    def _total(self, epoch: int) -> int:
        """How many entries an epoch has over all ranks."""

    @abstractmethod
    def _entries(self, epoch: int, numbers: Sequence[int]) -> Iterable[T]:
        """These of the entries of an epoch."""

    @abstractmethod
    def _fingerprint(self) -> str:
        """Tells orders apart; see ``order.Fingerprint``."""


class DistributedShardSampler(ResumableSampler[int], DistributedSampler[int]):
    """Indices of a map-style dataset for this rank, in one global order that every shape shares.

    Position ``p`` of the epoch's order is rank ``p % world_size``'s, so that what all ranks have
    taken after any step is the beginning of the order, and a job of another shape goes on behind
    it. Every pass over the sampler is a new epoch; ``set_epoch`` chooses it.

    It is a ``torch.utils.data.DistributedSampler``, which frameworks leave as it is. Under a framework
    that shares batches among ranks, as accelerate does, it gives the whole order to each rank.

    Args:
        data_source: The dataset; anything with ``len()``.
        shuffle: Take samples in an order of the epoch's own.
        seed: Of the shuffle.
        rank: Which rank this is; by default asked of ``torch.distributed``.
        world_size: How many there are; goes with ``rank``.
        equal_length: All ranks have equally many samples, and so equally many steps: ``wrap``
            repeats the order's first samples at its end, ``pad`` its last, ``drop`` leaves the
            last few out. ``none``: every sample once, ranks differ by one at most, and a DDP job
            has to cope with that.
        replication: So many ranks in a row read the same, as parts of one model do.

    Example:
        >>> sampler = DistributedShardSampler(dataset, shuffle=True, seed=1)
        >>> loader = DataLoader(dataset, batch_size=32, sampler=sampler, num_workers=4)
        >>> for step, batch in enumerate(loader, 1):
        ...     state = sampler.state_dict(num_samples=32 * step)
    """

    def __init__(
        self,
        data_source: Any,
        *,
        shuffle: bool = True,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        equal_length: EqualLength = "wrap",
        replication: int = 1,
    ) -> None:
        super().__init__(
            shuffle=shuffle,
            seed=seed,
            rank=rank,
            world_size=world_size,
            equal_length=equal_length,
            replication=replication,
        )
        self._source = data_source

    # What a DistributedSampler has, for those who look at it.
    @property
    def dataset(self) -> Any:  # type: ignore[override]
        """The data source."""
        return self._source

    @property
    def rank(self) -> int:  # type: ignore[override]
        """Which rank this is."""
        return self._rank_and_world()[0]

    @property
    def num_replicas(self) -> int:  # type: ignore[override]
        """How many ranks share the samples."""
        return self._rank_and_world()[1]

    @property
    def num_samples(self) -> int:  # type: ignore[override]
        """How many samples of an epoch are this rank's."""
        return len(self)

    @property
    def total_size(self) -> int:  # type: ignore[override]
        """How many samples of an epoch all ranks have together."""
        return self._total(self._epoch) if self._equal == "none" else len(self) * self.num_replicas

    @property
    def epoch(self) -> int:  # type: ignore[override]
        """The epoch under way, or to come."""
        return self._epoch

    @property
    def seed(self) -> int:  # type: ignore[override]
        """Of the shuffle."""
        return self._seed

    @property
    def shuffle(self) -> bool:  # type: ignore[override]
        """Whether each epoch has an order of its own."""
        return self._shuffle

    @property
    def drop_last(self) -> bool:  # type: ignore[override]
        """Whether the last few samples are left out, so that ranks are equally long."""
        return self._equal == "drop"

    def state_dict(self, num_samples: int | None = None) -> dict[str, Any]:
        """How far the pass under way is, as a few numbers that any shape of job goes on from.

        Args:
            num_samples: How many samples of this rank the training loop has taken in this pass. A
                plain DataLoader with workers asks for indices ahead of the loop, so that the
                sampler cannot know; a StatefulDataLoader can.
        """
        return self._state(num_samples)

    def _total(self, epoch: int) -> int:
        return len(self._source)

    def _entries(self, epoch: int, numbers: Sequence[int]) -> Iterable[int]:
        if not self._shuffle:
            return numbers
        shuffled = order.epoch_order(len(self._source), self._seed, epoch)
        taken: list[int] = order.chosen(shuffled, numbers).tolist()
        return taken

    def _fingerprint(self) -> str:
        return self._prints.of(getattr(self._source, "objects", self._source), self._shuffle)
