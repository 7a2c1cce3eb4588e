"""A sampler with a state, from which any number of ranks resume."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Self, TypeVar

from torch.utils.data import Sampler

from forebay import Listing
from forebay_torch import dist, frameworks, order
from forebay_torch.order import EqualLength, Fingerprint
from forebay_torch.resume import make_state, read_state, resume_state
from forebay_torch.saved_listing import SavedListing, check_data, rows_at_save

__all__ = ["ResumableSampler"]

T = TypeVar("T")


class _SamplerPass:
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
        # Entries given when another epoch was chosen for the next pass; -1 for never.
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
        self._latest: _SamplerPass | None = None
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
        return map(partial(_dataset_rows, source.rows), entries) if _is_saved_listing(source) else entries

    def _begin(self) -> _SamplerPass:
        """Starts the next pass. One that its loader drops is started a second time."""
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

    def _given(self, start: int) -> _SamplerPass:
        self._latest = _SamplerPass(self._epoch, start, self._view_coming())
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

    def _under_way(self, given: int | None) -> _SamplerPass | None:
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
        """Returns all entries of the next pass, or of the one under way; the position stays."""
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
        """Returns a digest of the order; see ``order.Fingerprint``."""


def _is_saved_listing(source: Any) -> bool:
    return isinstance(source, SavedListing)


def _dataset_rows(rows: Sequence[int], entry: Any) -> Any:
    """The places in the dataset of the samples of an entry."""
    return [rows[one] for one in entry] if isinstance(entry, list) else rows[entry]
