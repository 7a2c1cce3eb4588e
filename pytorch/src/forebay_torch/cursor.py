"""The position of an iterable dataset: a value that belongs to one pass of one rank.

A ``Pass`` is made by ``iter(dataset)``. It holds what it delivers, from where on, and how much of it
was delivered; nobody but its own iterator changes it. A ``Cursor`` says what the next pass will be,
and which pass is the latest. A worker's first pass follows from what was copied into the worker when
it was started, so that nothing that the training process does afterwards, and no other pass, can
change it. Later passes follow from shared cells, see ``cursor_cells``.
"""

from __future__ import annotations

import copy
import os
import weakref
from collections.abc import Mapping, Sequence
from multiprocessing.context import get_spawning_popen
from typing import Any, Self

from forebay_torch import dist, frameworks, order
from forebay_torch.cursor_cells import CursorCells
from forebay_torch.dataset_pass import Earlier, Pass, Position, ResumePoint
from forebay_torch.order import EqualLength
from forebay_torch.resume import make_state, read_state, resume_state

__all__ = ["Cursor"]


class Cursor(CursorCells):
    """The parameters of the next pass of a dataset, and the progress of the latest one."""

    def __init__(self, owner: str, seed: int, block: int, equal_length: EqualLength) -> None:
        """A cursor at the beginning of epoch 0.

        Args:
            owner: Name of the dataset's class, for messages.
            block: As for ``order.share``.
        """
        order.check_equal_length(owner, equal_length)
        if block < 1:
            raise ValueError(f"{owner}: batch_size must be at least 1, not {block}")
        super().__init__()
        self._name = owner
        self.seed = seed
        self.block = block
        self.equal_length: EqualLength = equal_length
        # If nobody chose an epoch it is the one that Lightning trains: what its fit loop reported to
        # this worker process, passes since then, and what a loaded state adds.
        self._trained: int | None = None
        self._trained_passes = 0
        # Whether a model waits for all ranks, as the training process passed it to a copy that cannot find out.
        self._is_in_step: bool | None = None
        # Whether a worker is being spawned for a pass that its loader drops, and the epoch of the
        # pass after that one where it is not the epoch of the loaded state.
        self._is_dropped = False
        self._epoch_after: int | None = None
        self._latest: Pass | None = None
        self._passes: weakref.WeakSet[Pass] = weakref.WeakSet()

    # Choices of the training process.

    @property
    def epoch(self) -> int:
        """The epoch under way, or to come."""
        self._learn_epoch()
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch of the next pass; that of a state just loaded keeps its place."""
        self._learn_epoch()
        self._is_chosen = True
        if self._resume is not None and self._resume.epoch != epoch:
            self._resume = None
        if epoch == self._epoch:
            self._publish_choice()
            return
        self._epoch = epoch
        for made in self._passes:
            made._mark = made.delivered
        self._publish()

    def resume(
        self, epoch: int, at: int, *, over: bool, earlier: Earlier = (), total: int = 0
    ) -> None:
        """Begins the next pass at ``at``; or the epoch after it, where it is over."""
        self._forget_passes()
        is_worker = dist.worker().is_process
        self._loads += not is_worker
        self._epoch = epoch + over
        load = 0 if is_worker else self._loads
        self._resume = self._loaded = ResumePoint(epoch, at, earlier, 0, load, total)
        self._publish()
        self._floor = self._version

    def resume_part(
        self,
        epoch: int,
        at: int,
        part: Mapping[str, int],
        world_size: int,
        earlier: Earlier = (),
        total: int = 0,
    ) -> None:
        """Resumes in this worker process from the part of its own state."""
        worker = dist.worker()
        here = (worker.id, worker.total, world_size, self._dealt())
        if here != (part["worker"], part["workers"], part["world_size"], part["block"]):
            raise ValueError(
                f"{self._name}: this is the state of one worker of another shape of loader; "
                "load resume_state(state of the loader) into the dataset instead"
            )
        self._forget_passes()
        if self._is_dropped or frameworks.is_pass_dropped():
            # The epoch that was over must not take the place of the one that is to come.
            is_known = self._is_chosen or self._trained is not None or frameworks.epoch() is not None
            self._epoch_after = self._epoch if is_known else None
            self._is_dropped = False
        self._epoch = epoch
        self._resume = ResumePoint(epoch, at, earlier, part["delivered"], 0, total)

    def load(
        self,
        state: Mapping[str, Any],
        total: int,
        world_size: int,
        fingerprint: str,
        *,
        listed: int | None = None,
    ) -> None:
        """Resumes from a state with the next pass; after the end of an epoch, with the next epoch.

        Args:
            listed: ``total`` where that is less than the dataset has now, else 0; None where the
                dataset cannot go on with less than it has.
        """
        epoch, consumed = read_state(
            self._name,
            state,
            seed=self.seed,
            total=total,
            fingerprint=fingerprint,
            takes_listed=listed is not None,
        )
        part = state.get("part")
        if part is not None:
            self.resume_part(epoch, consumed, part, world_size, total=listed or 0)
        else:
            self.resume(epoch, consumed, over=0 < total <= consumed, total=listed or 0)

    # Passes.

    def open(self) -> Pass:
        """Makes the next pass. In a worker process it begins at once; elsewhere ``begin`` begins it
        with its first sample, because loaders make iterators that they never read."""
        made = self._latest = Pass()
        self._passes.add(made)
        if dist.worker().is_process:
            self.begin(made)
        return made

    def begin(self, made: Pass) -> None:
        """Decides what the pass is; a pass that has started stays what it is."""
        if made._started_by:
            return
        self._load_what_lightning_left(made)
        made._started_by = os.getpid()
        after, self._epoch_after = self._epoch_after, None
        is_follower = self.is_follower and after is None
        if is_follower:
            self._read_training_process()
        if after is None:
            self._follow_lightning()
        resume = self._due()
        made.epoch = self._epoch
        made.is_split = frameworks.splitter() is not None
        made.block = self._dealt()
        if resume is not None:
            made.base, made.earlier, made.total = resume.at, resume.earlier, resume.total
            made.skip = made.delivered = resume.skip
        if is_follower:
            if resume is not None and resume.load:
                self._take(resume.load)
            self._report(made)
        self._resume = None
        if after is not None:
            self._epoch = after
        elif not is_follower:
            self._publish()
            self._floor = self._version

    def _load_what_lightning_left(self, made: Pass) -> None:
        """Loads the state that Lightning restored too late for the loader of this pass."""
        unloaded = frameworks.unloaded_state(
            self._name, lambda loader: frameworks.is_loader_of(loader, self)
        )
        if unloaded is not None:
            loader, state = unloaded
            loader.dataset.load_state_dict(resume_state(state))
            # A state that is loaded ends other passes.
            self._latest = made
            self._passes.add(made)

    def share(self, made: Pass, total: int, ranks: tuple[int, int]) -> Sequence[int]:
        """Begins a pass: the positions of the epoch's order that this worker delivers in it.

        Args:
            ranks: Which rank this is, and how many there are.
        """
        self.begin(made)
        worker = dist.worker()
        rank, world_size = ranks
        mine = order.share(
            total,
            rank=rank,
            world_size=world_size,
            worker=worker.id,
            workers=worker.total,
            start=made.base,
            block=made.block,
            equal_length=self._equal_now(),
        )
        return mine[made.skip :]

    def _equal_now(self) -> EqualLength:
        """How ranks become equally long. Where Lightning trains, or a model of DDP or FSDP, ranks of
        different lengths would wait for each other for ever."""
        if self.equal_length != "none":
            return self.equal_length
        is_training = self._trained is not None or frameworks.epoch() is not None
        if not is_training:
            known = self._is_in_step
            is_training = frameworks.trains_in_step() if known is None else known
        return "wrap" if is_training else "none"

    def _dealt(self) -> int:
        """How many samples in a row one worker delivers: what a framework takes at a time."""
        found = frameworks.splitter()
        return self.block if found is None or found.block is None else found.block

    def _follow_lightning(self) -> None:
        """Takes the epoch that Lightning trains, which it sets in samplers and not in datasets;
        unless somebody chose one."""
        worker = dist.worker()
        trained = frameworks.epoch() if worker.tag == -1 or self._trained is None else self._trained
        if trained is None or self._is_chosen:
            return
        if worker.is_process:
            # Workers that live on have the call stack of their first epoch.
            self._trained = trained
            trained += self._trained_passes
            self._trained_passes += 1
        if self._untaken() is not None:
            self._offset = self._epoch - trained
        else:
            self._epoch = trained + self._offset

    def joined(self, made: Pass) -> Cursor:
        """A cursor of its own whose next pass is a part of this one, for a thread."""
        self.begin(made)
        twin = copy.copy(self)
        twin._epoch = made.epoch
        twin._resume = ResumePoint(made.epoch, made.base, made.earlier, total=made.total)
        twin._latest = made
        twin._is_chosen = True
        # A thread does not have the call stack that shows whether Lightning trains.
        twin.equal_length = self._equal_now()
        twin._is_in_step = twin.equal_length != "none"
        return twin

    # States.

    def length(self, total: int, ranks: tuple[int, int]) -> int:
        """How many samples of a whole epoch are this rank's."""
        rank, world_size = ranks
        mine = order.count(
            total, rank=rank, world_size=world_size, equal_length=self._equal_now()
        )
        loader = frameworks.loader()
        if loader is None:
            return mine
        counts = order.counts_of_workers(mine, loader.workers, self._dealt())
        return loader.length(counts, mine)

    def state(
        self, num_samples: int | None, total: int, world_size: int, fingerprint: str
    ) -> dict[str, Any]:
        """The state after ``num_samples`` of the latest pass were delivered by this rank."""
        epoch, base = self.position(num_samples)[:2]
        state = make_state(
            epoch=epoch, seed=self.seed, consumed=base, total=total, fingerprint=fingerprint
        )
        part = None if num_samples is not None else self.part(world_size)
        if part is not None:
            state["part"] = part
        else:
            state["consumed"] = min(total, base + self.counted(num_samples) * world_size)
        return state

    def position(self, num_samples: int | None = None) -> Position:
        """The start of the latest pass, or of the next one if none is under way.

        Args:
            num_samples: How many samples the caller says that the pass has delivered: if there are
                any, the pass is not the next one.
        """
        self._learn_epoch()
        reported = self._reported(num_samples)
        if reported is not None:
            return reported
        made = self._own_latest()
        if made is not None and (made.is_current or num_samples):
            workers, is_split, block = made.threads, made.is_split, made.block
            base, earlier, total = made.base, made.earlier, made.total
            return Position(made.epoch, base, earlier, workers, is_split, block, total)
        at, earlier, _, _, total = (self._due() or ResumePoint(0, 0))[1:]
        return Position(self._epoch, at, earlier, 0, False, self.block, total)

    def part(self, world_size: int) -> dict[str, int] | None:
        """The part of the state that only this worker process has; None outside of one."""
        worker = dist.worker()
        if not worker.is_process:
            return None
        return {
            "worker": worker.id,
            "workers": worker.total,
            "world_size": world_size,
            "block": self._dealt(),
            "delivered": self._delivered(),
        }

    def counted(self, num_samples: int | None) -> int:
        """How many samples of the latest pass this rank has delivered, or a user says it has."""
        if num_samples is None:
            now = self.position()
            if now.is_split:
                raise ValueError(
                    f"{self._name}: a framework shares the samples among ranks and reads ahead; say "
                    "how many samples this rank has taken in this pass: state_dict(num_samples=...)"
                )
            if self._reported(None) is not None:
                raise ValueError(
                    f"{self._name}: workers deliver the samples; say how many the loop has taken "
                    "in this pass: state_dict(num_samples=...), or use a StatefulDataLoader"
                )
            return self._delivered()
        if num_samples < 0:
            raise ValueError(f"{self._name}: num_samples must not be negative: {num_samples}")
        return num_samples

    def _delivered(self) -> int:
        made = self._own_latest()
        if made is not None and made.is_current:
            return made.delivered
        resume = self._due()
        return 0 if resume is None else resume.skip

    def _own_latest(self) -> Pass | None:
        """The latest pass, once it has started; in a worker not one that the training process left."""
        made = self._latest
        if made is None or not made._started_by:
            return None
        is_foreign = dist.worker().is_process and made._started_by != os.getpid()
        return None if is_foreign else made

    def _forget_passes(self) -> None:
        self._latest = None
        self._passes = weakref.WeakSet()

    def _prepare(self) -> None:
        self._learn_epoch()
        super()._prepare()

    def __getstate__(self) -> dict[str, Any]:
        self._learn_epoch()
        state = super().__getstate__()
        del state["_passes"]
        trained = frameworks.epoch()
        state["_trained"] = self._trained if trained is None else trained
        is_spawned = get_spawning_popen() is not None
        state["_is_dropped"] = is_spawned and frameworks.is_pass_dropped()
        if is_spawned:
            state["_is_in_step"] = frameworks.trains_in_step()
        # All workers of a pass get the same, whatever those that run already have taken.
        return state if state["_block"] is not None else {**state, **self._values()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._passes = weakref.WeakSet(() if self._latest is None else (self._latest,))

    def __copy__(self) -> Self:
        self._learn_epoch()
        twin = super().__copy__()
        twin.__setstate__({**twin.__dict__, **self._values()})
        return twin

    def _values(self) -> dict[str, Any]:
        """The attributes that a copy has of its own: the next pass, and the progress of the latest one."""
        latest = None if self._latest is None else copy.copy(self._latest)
        return {"_latest": latest, "_resume": self._due(), "_started_passes": 0}
