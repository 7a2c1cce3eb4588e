"""One global order of samples, dealt out over ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch.utils.data.distributed import DistributedSampler

from forebay_torch import order
from forebay_torch.order import EqualLength
from forebay_torch.resumable_sampler import ResumableSampler

__all__ = ["DistributedShardSampler", "ResumableSampler"]


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

    # Attributes of a DistributedSampler, for frameworks that read them.
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
