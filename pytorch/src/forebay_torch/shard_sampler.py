"""Samplers that can be left at any step and gone on with by another number of ranks."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Self, TypeVar

from torch.utils.data import Sampler
from torch.utils.data.distributed import DistributedSampler

from forebay import Listing
from forebay_torch import order, frameworks, dist
from forebay_torch.saved_listing import SavedListing, check_data, rows_at_save
from forebay_torch.order import EqualLength, Fingerprint
from forebay_torch.resume import make_state, read_state, resume_state

__all__ = ["DistributedShardSampler", "ResumableSampler"]

T = TypeVar("T")


class _Given:
    """One pass over a sampler: where it began, and how many entries it gave."""

    __slots__ = ("epoch", "base", "given", "mark", "is_split", "view")

    def __init__(self, epoch: int, base: int, view: ResumableSampler[Any]) -> None:
        # Over what the sampler gives the entries: itself, or a copy over what was listed once.
        self.view = view
        # Whether a framework shares the entries among ranks.
        self.is_split = frameworks.splitter() is not None
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
        source: Any,
    ) -> None:
        owner = type(self).__name__
        self._source = source
        self._replication = dist.checked_replication(owner, replication)
        order.check_equal_length(owner, equal_length)
        self._rank = dist.checked_rank(owner, rank, world_size)
        self._equal: EqualLength = equal_length
        self._shuffle = shuffle
        self._seed = seed
        self._prints = Fingerprint()
        self._epoch = 0
        # Epoch and beginning of the next pass; None: the epoch after the latest one.
        self._next: tuple[int, int] | None = (0, 0)
        self._latest: _Given | None = None
        # A copy over what was listed when the loaded state was saved, where that is less, for the
        # pass that goes on from the state.
        self._listed: ResumableSampler[T] | None = None
        # The epoch of whose end a state was loaded, until the next epoch begins.
        self._over: int | None = None

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order of the next pass; that of a state just loaded keeps its place, and the
        pass under way stays as it is."""
        if epoch == self._over:
            self._next = (epoch, self._total(epoch))
        elif self._next is None or self._next[0] != epoch:
            self._next, self._listed = (epoch, 0), None
        if self._latest is not None and self._latest.epoch != epoch:
            self._latest.mark = self._latest.given
        self._epoch = epoch
        self._over = None

    def __iter__(self) -> Iterator[T]:
        # A DataLoader makes iterators that it never reads from: a pass begins with its first entry.
        made = self._begin()
        for entry in made.view._of(made.epoch, made.base):
            made.given += 1
            yield entry

    def _of(self, epoch: int, start: int) -> Iterable[T]:
        """This rank's entries of an epoch from ``start`` on."""
        entries = self._entries(epoch, self._mine(epoch, start))
        source = self._source
        return map(partial(_places, source.rows), entries) if _is_listed(source) else entries

    def _begin(self) -> _Given:
        """Begins the next pass. One that its loader drops is begun a second time."""
        unloaded = frameworks.unloaded_state(
            type(self).__name__, lambda loader: frameworks.is_loader_of(loader, self)
        )
        if unloaded is not None:
            self.load_state_dict(resume_state(unloaded[1]))
        self._epoch, start = self._coming()
        if frameworks.is_pass_dropped():
            self._next = (self._epoch, start)
            return self._given(start)
        made = self._given(start)
        self._next = self._over = self._listed = None
        return made

    def _given(self, start: int) -> _Given:
        self._latest = _Given(self._epoch, start, self._view_coming())
        return self._latest

    def _view_coming(self) -> ResumableSampler[T]:
        """The sampler over what the next pass reads."""
        return self if self._listed is None else self._listed

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
        return "none" if frameworks.is_predicting() else self._equal

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
        latest, view = self._under_way(given), self._view_of(given)
        if latest is not None:
            epoch, base = latest.epoch, latest.base
            given = latest.given if given is None else given
        else:
            epoch, base = self._coming()
        return make_state(
            epoch=epoch,
            seed=self._seed,
            consumed=base + (given or 0) * world_size,
            total=view._total(epoch),
            fingerprint=view._fingerprint(),
        )

    def _under_way(self, given: int | None) -> _Given | None:
        """The latest pass, unless the next one is chosen already and nothing of the latest was
        ``given``."""
        latest = self._latest
        is_one = latest is not None and (given or latest.mark != latest.given)
        return latest if is_one else None

    def _view_of(self, given: int | None) -> ResumableSampler[T]:
        """The sampler over what the pass under way reads, or the next one."""
        latest = self._under_way(given)
        return self._view_coming() if latest is None else latest.view

    def load_state_dict(
        self, state: Mapping[str, Any], *, data: Literal["same", "listed"] = "same"
    ) -> None:
        """Makes the next pass go on where the state says; the one after it is whole again.

        Any number of ranks may go on; each loads the same state, that of rank 0. A state saved at
        the end of an epoch goes on with the next.

        Args:
            data: ``"same"`` refuses a dataset that has other objects than when the state was saved.
                ``"listed"`` takes one that has more: this epoch goes on with those of then, and
                the new ones come with the next epoch. If they are not the last by name, the time
                of each object is requested.

        Raises:
            ValueError: The state is of other data, of another order or of another seed.
        """
        owner = type(self).__name__
        check_data(owner, data)
        view = self if data == "same" else self._as_listed(state)
        total = view._total(state.get("epoch", 0))
        self._epoch, consumed = read_state(
            owner,
            state,
            seed=self._seed,
            total=total,
            fingerprint=view._fingerprint(),
            takes_listed=True,
        )
        self._listed = None if view is self else view
        self._over = None
        # Ranks and loaders may leave out the last entries of an epoch.
        is_over = total <= consumed or frameworks.is_loading_finished_pass()
        if total > 0 and consumed > 0 and is_over:
            self._over, self._epoch, consumed = self._epoch, self._epoch + 1, 0
            self._listed = None
        self._next = (self._epoch, consumed)
        self._latest = None

    def _as_listed(self, state: Mapping[str, Any]) -> ResumableSampler[T]:
        """The sampler over what the dataset had when the state was saved: itself, or a copy."""
        owner, source, order_then = type(self).__name__, self._source, state.get("order")
        is_same = self._fingerprint() == order_then
        if is_same or not isinstance(getattr(source, "objects", None), Listing):
            return self
        count = self._objects_in(state)

        def view(rows: Sequence[int]) -> ResumableSampler[T]:
            made = copy.copy(self)
            made._prints, made._latest, made._listed = Fingerprint(), None, None
            made._read(SavedListing(source, rows))
            return made

        return view(rows_at_save(owner, source, count, lambda r: view(r)._fingerprint() == order_then))

    def _objects_in(self, state: Mapping[str, Any]) -> int:
        """How many objects a state is of."""
        return int(state.get("total", 0))

    def _read(self, source: Any) -> None:
        """Takes another dataset."""
        self._source = source

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
        return dist.replicated(owner, dist.ranks(owner, self._rank), self._replication)

    def order_ahead(self) -> list[T]:
        """What the next pass, or the one under way, gives from its beginning on; nothing moves."""
        epoch, start = self._coming()
        return list(self._view_coming()._of(epoch, start))

    @abstractmethod
    def _total(self, epoch: int) -> int:
        """How many entries an epoch has over all ranks."""

    @abstractmethod
    def _entries(self, epoch: int, numbers: Sequence[int]) -> Iterable[T]:
        """These of the entries of an epoch."""

    @abstractmethod
    def _fingerprint(self) -> str:
        """Tells orders apart; see ``order.Fingerprint``."""


def _is_listed(source: Any) -> bool:
    return isinstance(source, SavedListing)


def _places(rows: Sequence[int], entry: Any) -> Any:
    """The places in the dataset of the samples of an entry."""
    return [rows[one] for one in entry] if isinstance(entry, list) else rows[entry]


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
            source=data_source,
        )

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
