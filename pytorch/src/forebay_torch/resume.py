"""How far a pass over a dataset is, as a small state that any number of ranks goes on from.

A state is a dict of plain numbers and texts, the same size for a thousand samples and for a
thousand million: ``{"forebay": 1, "epoch", "seed", "consumed", "total", "order"}``. ``consumed``
positions of the epoch's order have been delivered by all ranks together; ``order`` tells whether it
is still the same order. Inside a worker process of a loader the state has a ``part`` more: what that
worker alone knows. ``resume_state`` makes one state of the parts.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from forebay_torch import order, outside, place
from forebay_torch.order import EqualLength

__all__ = ["Cursor", "make_state", "read_state", "resume_state"]

_VERSION = 1


def make_state(
    *, epoch: int, seed: int, consumed: int, total: int, fingerprint: str
) -> dict[str, Any]:
    """A state; ``consumed`` may count beyond the end."""
    return {
        "forebay": _VERSION,
        "epoch": epoch,
        "seed": seed,
        "consumed": min(consumed, total),
        "total": total,
        "order": fingerprint,
    }


def read_state(
    owner: str, state: Mapping[str, Any], *, seed: int, total: int, fingerprint: str
) -> tuple[int, int]:
    """Epoch and consumed positions of a state, once it is known to fit.

    Raises:
        ValueError: It is of something else, or of another order.
    """
    if not isinstance(state, Mapping) or state.get("forebay") != _VERSION:
        raise ValueError(
            f"{owner}: this is no state that state_dict() made; of the state of a "
            "StatefulDataLoader take resume_state(state)"
        )
    if state["seed"] != seed:
        raise ValueError(f"{owner}: the state is of seed {state['seed']}, this one has {seed}")
    if (state["total"], state["order"]) != (total, fingerprint):
        raise ValueError(
            f"{owner}: the state is of {state['total']} entries, of which this one has {total}, or "
            "the same number in another order: the data or its settings changed since it was saved"
        )
    return state["epoch"], state.get("consumed", 0)


def resume_state(loader_state: Mapping[str, Any]) -> dict[str, Any]:
    """The state of the dataset or sampler inside the state of a ``StatefulDataLoader``.

    A StatefulDataLoader takes its own state back only with the same number of workers. What this
    returns is for ``load_state_dict`` of the dataset, sampler or batch sampler, before a loader of
    any shape is made with it.

    Raises:
        ValueError: There is none inside, or its workers did not deliver in the epoch's order
            because the dataset was not told the loader's ``batch_size``.
    """
    if loader_state.get("_steps_since_snapshot"):
        raise ValueError(
            "resume_state: the loader went on since its last snapshot; make it with "
            "snapshot_every_n_steps=1"
        )
    found = list(_inside(loader_state))
    parts = [state for state in found if "part" in state]
    if not parts:
        if not found:
            raise ValueError("resume_state: no dataset or sampler of Forebay is in this state")
        return dict(found[0])
    shape = {(s["part"]["workers"], s["part"]["world_size"], s["part"]["block"]) for s in parts}
    by_worker = {state["part"]["worker"]: state for state in parts}
    workers, world_size, block = next(iter(shape))
    bases = {(state["epoch"], state.get("consumed"), str(state.get("passes"))) for state in parts}
    if len(shape) != 1 or len(bases) != 1 or sorted(by_worker) != list(range(workers)):
        raise ValueError("resume_state: the states of the workers do not belong together")
    delivered = [by_worker[number]["part"]["delivered"] for number in range(workers)]
    together = sum(delivered)
    state = {key: value for key, value in parts[0].items() if key != "part"}
    if "passes" in state:
        # Only the reader can tell whether the workers took turns so: it knows its shards.
        made = [world_size, workers, block, together]
        rank = parts[0]["part"]["rank"]
        checked = [rank, zlib.crc32(repr(delivered).encode())]
        return {**state, "passes": [*state["passes"], made], "checked": checked}
    rounds, rest = divmod(together, block * workers)
    for number, done in enumerate(delivered):
        if done != rounds * block + min(max(rest - number * block, 0), block):
            raise ValueError(
                "resume_state: the workers did not deliver in the epoch's order; give the dataset "
                f"the batch_size of the loader (it has {block})"
            )
    state["consumed"] = min(state["total"], state["consumed"] + together * world_size)
    return state


def _inside(state: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(state, Mapping):
        if "forebay" in state:
            yield state
        else:
            for value in state.values():
                yield from _inside(value)
    elif isinstance(state, list | tuple):
        for value in state:
            yield from _inside(value)


# Places in the shared memory of a Cursor.
_EPOCH, _GENERATION, _RESUME_EPOCH, _RESUME_AT, _TAKEN, _BASE, _WORKERS = range(7)
_IS_CHOSEN, _IS_SPLIT, _BLOCK, _OFFSET = range(7, 11)


class Cursor:
    """Where an iterable dataset is, known to the training process and to all workers.

    A loaded state is gone on from by the first pass after it, by all workers of that pass, and by
    no later one. Its numbers are in shared memory, so that workers which live on see a new epoch.
    """

    def __init__(
        self,
        owner: str,
        seed: int,
        block: int,
        equal_length: EqualLength,
    ) -> None:
        """A cursor at the beginning of epoch 0.

        Args:
            owner: Name of the dataset's class, for messages.
            block: As for ``order.share``.
        """
        order.check_equal_length(owner, equal_length)
        if block < 1:
            raise ValueError(f"{owner}: batch_size must be at least 1, not {block}")
        self._owner = owner
        self.seed = seed
        self.block = block
        self.equal_length: EqualLength = equal_length
        self._shared = torch.zeros(11, dtype=torch.int64)
        self._shared[_RESUME_EPOCH] = -1
        self._shared.share_memory_()  # type: ignore[no-untyped-call]
        # Of this process: the load that was gone on from, the part that a worker was given, and
        # how many samples of the pass were delivered.
        self._used = 0
        self._part: tuple[int, int] | None = None
        self._delivered = 0
        # The epoch of Lightning that this worker process was started in, and its passes since.
        self._trained: int | None = None
        self._passes = 0

    def __getstate__(self) -> dict[str, Any]:
        trained = outside.epoch()
        return {**self.__dict__, "_trained": self._trained if trained is None else trained}

    @property
    def epoch(self) -> int:
        """The epoch under way, or to come."""
        return self._get(_EPOCH)

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch of the next pass; that of a state just loaded keeps its place."""
        self._shared[_IS_CHOSEN] = 1
        self._set_epoch(epoch)

    def _set_epoch(self, epoch: int) -> None:
        self._shared[_EPOCH] = epoch
        if epoch != self._get(_RESUME_EPOCH):
            self._shared[_RESUME_EPOCH] = -1
            self._shared[_BASE] = 0
        elif not self._get(_TAKEN):
            self._shared[_BASE] = self._get(_RESUME_AT)

    def take(self) -> tuple[int, int]:
        """Begins a pass: where all begin, and how many samples this worker has delivered of it."""
        worker = place.worker()
        shared = self._shared
        self._follow(worker)
        base, skip = 0, 0
        if self._part is not None:
            base, skip = self._part
            self._part = None
        elif (
            self._used != self._get(_GENERATION)
            and self._get(_RESUME_EPOCH) == self.epoch
            and self._get(_TAKEN) in (0, worker.tag)
        ):
            shared[_TAKEN] = worker.tag
            base = self._get(_RESUME_AT)
        self._used = self._get(_GENERATION)
        shared[_BASE] = base
        shared[_WORKERS] = worker.total if worker.tag != -1 else 0
        shared[_IS_SPLIT] = outside.splitter() is not None
        shared[_BLOCK] = self._dealt()
        self._delivered = skip
        return base, skip

    def _follow(self, worker: place.Worker) -> None:
        """Takes the epoch that Lightning trains, which it tells samplers and not datasets; unless
        somebody chose one."""
        trained = outside.epoch() if worker.tag == -1 or self._trained is None else self._trained
        if trained is None or self._get(_IS_CHOSEN):
            return
        if worker.is_process:
            # Workers that live on have the call stack of their first epoch.
            self._trained = trained
            trained += self._passes
            self._passes += 1
        is_loaded = self._used != self._get(_GENERATION) and self._get(_TAKEN) in (0, worker.tag)
        if self._part is not None or is_loaded:
            self._shared[_OFFSET] = self.epoch - trained
        else:
            self._shared[_EPOCH] = trained + self._get(_OFFSET)

    def begin(self, total: int, ranks: tuple[int, int]) -> Sequence[int]:
        """Begins a pass: the positions of the epoch's order that this worker delivers in it.

        Args:
            ranks: Which rank this is, and how many there are.
        """
        base, skip = self.take()
        worker = place.worker()
        rank, world_size = ranks
        mine = order.share(
            total,
            rank=rank,
            world_size=world_size,
            worker=worker.id,
            workers=worker.total,
            start=base,
            block=self._dealt(),
            equal_length=self.equal_length,
        )
        return mine[skip:]

    def _dealt(self) -> int:
        """How many samples in a row one worker delivers: what a framework takes at a time."""
        found = outside.splitter()
        return self.block if found is None or found.block is None else found.block

    def deliver(self) -> None:
        """One sample more is handed out."""
        self._delivered += 1

    def length(self, total: int, ranks: tuple[int, int]) -> int:
        """How many samples of a whole epoch are this rank's."""
        rank, world_size = ranks
        return order.count(
            total, rank=rank, world_size=world_size, equal_length=self.equal_length
        )

    def state(
        self, num_samples: int | None, total: int, world_size: int, fingerprint: str
    ) -> dict[str, Any]:
        """The state after ``num_samples`` of the pass under way were delivered by this rank."""
        state = make_state(
            epoch=self.epoch,
            seed=self.seed,
            consumed=self.base,
            total=total,
            fingerprint=fingerprint,
        )
        part = None if num_samples is not None else self.part(world_size)
        if part is not None:
            state["part"] = part
        else:
            state["consumed"] = min(total, self.base + self.counted(num_samples) * world_size)
        return state

    @property
    def base(self) -> int:
        """Where the pass under way began."""
        return self._get(_BASE)

    @property
    def workers(self) -> int:
        """How many workers deliver the pass under way."""
        return self._get(_WORKERS) or 1

    @property
    def is_split(self) -> bool:
        """Whether a framework shares the samples of the pass under way among ranks."""
        return bool(self._get(_IS_SPLIT))

    @property
    def dealt_block(self) -> int:
        """How many samples in a row one worker delivers in the pass under way."""
        return self._get(_BLOCK) or self.block

    def part(self, world_size: int) -> dict[str, int] | None:
        """What this worker process alone knows; None outside of one."""
        worker = place.worker()
        if not worker.is_process:
            return None
        return {
            "worker": worker.id,
            "workers": worker.total,
            "world_size": world_size,
            "block": self._dealt(),
            "delivered": self._delivered,
        }

    def counted(self, num_samples: int | None) -> int:
        """How many samples of the pass under way this rank has delivered, or a user says it has."""
        if num_samples is None:
            if self.is_split:
                raise ValueError(
                    f"{self._owner}: a framework shares the samples among ranks and reads ahead; say "
                    "how many samples this rank has taken in this pass: state_dict(num_samples=...)"
                )
            if self._get(_WORKERS):
                raise ValueError(
                    f"{self._owner}: workers deliver the samples; say how many the loop has taken "
                    "in this pass: state_dict(num_samples=...), or use a StatefulDataLoader"
                )
            return self._delivered
        if num_samples < 0:
            raise ValueError(f"{self._owner}: num_samples must not be negative: {num_samples}")
        return num_samples

    def load(
        self, state: Mapping[str, Any], total: int, world_size: int, fingerprint: str
    ) -> None:
        """Goes on from a state with the next pass; after an epoch that was over, with the next."""
        epoch, consumed = read_state(
            self._owner, state, seed=self.seed, total=total, fingerprint=fingerprint
        )
        part = state.get("part")
        if part is not None:
            self.resume_part(epoch, consumed, part, world_size)
        else:
            self.resume(epoch, consumed, over=0 < total <= consumed)

    def resume(self, epoch: int, at: int, *, over: bool) -> None:
        """Begins the next pass at ``at``; or the epoch after it, where it is over."""
        shared = self._shared
        self._part = None
        self._delivered = 0
        shared[_EPOCH] = epoch + over
        shared[_GENERATION] += 1
        shared[_RESUME_EPOCH] = epoch
        shared[_RESUME_AT] = at
        shared[_TAKEN] = 0
        shared[_BASE] = 0 if over else at
        shared[_WORKERS] = 0

    def resume_part(
        self, epoch: int, base: int, part: Mapping[str, int], world_size: int
    ) -> None:
        """Goes on in this worker process where it was itself."""
        worker = place.worker()
        here = (worker.id, worker.total, world_size, self._dealt())
        if here != (part["worker"], part["workers"], part["world_size"], part["block"]):
            raise ValueError(
                f"{self._owner}: this is the state of one worker of another shape of loader; "
                "load resume_state(state of the loader) into the dataset instead"
            )
        self._shared[_EPOCH] = epoch
        self._part = (base, part["delivered"])

    def twin(self) -> Cursor:
        """The same cursor for another thread: it counts what is delivered on its own."""
        twin = copy.copy(self)
        twin._delivered = 0
        return twin

    def _get(self, where: int) -> int:
        return int(self._shared[where])
