"""The order of an epoch, announced to the cluster and to a thread that fetches the next batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch.utils.data import Sampler

from forebay_torch.base_map_dataset import BaseMapDataset
from forebay_torch.cluster_prefetch import ClusterPrefetcher
from forebay_torch.resumable_sampler import ResumableSampler

__all__ = ["PrefetchOrder", "prefetch_order"]


class PrefetchOrder(Sampler[Any]):
    """A sampler, or batch sampler, that gives what another one gives, in its order, and announces
    that order. Made by ``prefetch_order``.

    ``set_epoch``, ``state_dict`` and ``load_state_dict`` are those of the other.
    """

    def __init__(self, dataset: Any, sampler: Any, ahead: int, batches: int) -> None:
        self._dataset = dataset
        self._sampler = sampler
        self._ahead = ahead
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        order = self._order()
        flat, ends = _flat(order)
        prefetcher = ClusterPrefetcher(self._dataset._index, flat, self._ahead)
        prefetcher.reached(0)
        fetched = self._dataset.start_prefetcher(self._batches) if self._batches else None
        entries: Iterable[Any] = self._sampler if self._is_known else order
        prefetched = iter(fetched.along(order)) if fetched is not None else iter(())
        try:
            for number, entry in enumerate(entries):
                next(prefetched, None)
                prefetcher.reached(ends[number] if number < len(ends) else len(flat))
                yield entry
        finally:
            prefetcher.close()
            if fetched is not None:
                fetched.close()

    def __len__(self) -> int:
        return len(self._sampler)

    def set_epoch(self, epoch: int) -> None:
        """As that of the sampler, where it has one."""
        if hasattr(self._sampler, "set_epoch"):
            self._sampler.set_epoch(epoch)

    def state_dict(self, *counts: Any, **named: Any) -> dict[str, Any]:
        """As that of the sampler."""
        state: dict[str, Any] = self._sampler.state_dict(*counts, **named)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As that of the sampler."""
        self._sampler.load_state_dict(state)

    @property
    def _is_known(self) -> bool:
        return isinstance(self._sampler, ResumableSampler)

    def _order(self) -> list[Any]:
        """All that the next pass gives. The order of a foreign sampler is drawn here, as a whole."""
        if isinstance(self._sampler, ResumableSampler):
            return self._sampler.order_ahead()
        return list(self._sampler)


def prefetch_order(
    dataset: BaseMapDataset, sampler: Any, epoch: int = 0, *, ahead: int = 1024, batches: int = 0
) -> PrefetchOrder:
    """``sampler``, whose order is announced to the cluster, so that cold objects are warm when due.

    It is advice that changes no result. The cluster fetches cold objects by prefetch jobs on the
    next ``ahead`` objects, a quarter of them at a time as the loop comes on; a cluster that does not
    take a job is a warning.

    Args:
        dataset: The dataset that the sampler is for.
        sampler: A sampler or a batch sampler; one of another package is drawn as a whole at the
            beginning of each pass.
        epoch: The first epoch.
        ahead: How many objects are announced to the cluster before they are due; 0 announces none.
        batches: How many of the next batches a thread of this process fetches too. For loaders
            without workers, and with a batch sampler; workers fetch ahead by themselves.

    Raises:
        ValueError: A number is negative.
        TypeError: ``dataset`` is not map-style, or ``batches`` came without a batch sampler.

    Example:
        >>> order = prefetch_order(dataset, DistributedShardSampler(dataset))
        >>> loader = DataLoader(dataset, batch_size=64, sampler=order, num_workers=4)
    """
    if not isinstance(dataset, BaseMapDataset):
        raise TypeError(
            f"prefetch_order takes a map-style dataset, not {type(dataset).__name__}; iterable ones "
            "have the argument warm_ahead"
        )
    if ahead < 0 or batches < 0:
        raise ValueError(f"ahead={ahead} and batches={batches} must not be negative")
    if batches and not getattr(sampler, "batch_size", None) and not hasattr(
        sampler, "max_batch_size"
    ):
        raise TypeError("batches=… needs a batch sampler: without it nobody knows the batches")
    wrapped = PrefetchOrder(dataset, sampler, ahead, batches)
    if epoch:
        wrapped.set_epoch(epoch)
    return wrapped


def _flat(order: Sequence[Any]) -> tuple[list[int], list[int]]:
    """All indices of samples or batches, one after the other, and where each entry ends."""
    flat: list[int] = []
    ends: list[int] = []
    for entry in order:
        if isinstance(entry, list | tuple):
            flat += (int(index) for index in entry)
        else:
            flat.append(int(entry))
        ends.append(len(flat))
    return flat, ends
