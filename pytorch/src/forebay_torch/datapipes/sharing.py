"""How the ranks and workers of a loader share what a pipe gives."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any, TypeVar

from torch.utils.data import graph_settings
from torch.utils.data.datapipes.datapipe import IterDataPipe
from torch.utils.data.graph import traverse_dps

from forebay_torch import frameworks, dist

__all__ = ["Shared", "dealt", "ranks_in_step", "ranks_of_lines"]

T = TypeVar("T")


class Shared:
    """A pipe whose items ranks and workers share, as those of a ``sharding_filter``.

    A DataLoader calls ``apply_sharding`` of each pipe that has it, and refuses a pipeline that would be
    shared twice. So a pipe of this class has it only where no other pipe before or behind it shares.
    """

    source_datapipe: Any
    # How many instances share the items, and which of them this is: as a loader said.
    _instances: tuple[int, int] | None = None
    # Whether a loader was answered that another pipe shares the items.
    _is_shared_elsewhere = False
    # Whether ranks share the lines of the files, and so not the files.
    _leaves_ranks_to_lines = False

    @property
    def apply_sharding(self) -> Callable[..., None]:
        """Function that a loader calls with the number of instances of the pipe and the index of this one.

        Raises:
            AttributeError: Another pipe shares the items.
        """
        caller = sys._getframe(1)
        while caller.f_code.co_name == "_is_sharding_datapipe" and caller.f_back is not None:
            caller = caller.f_back
        is_graph = caller.f_globals.get("__name__") == graph_settings.__name__
        applied = caller.f_locals.get("prev_applied") if is_graph else None
        if applied is not None or _is_shared_before(self.source_datapipe):
            self._is_shared_elsewhere = True
            raise AttributeError("apply_sharding")
        return self._apply_sharding

    def _apply_sharding(
        self, num_of_instances: int, instance_id: int, sharding_group: Any = None
    ) -> None:
        self._instances = num_of_instances, instance_id

    def shared(self, items: Iterable[T]) -> Iterator[T]:
        """Returns the items that belong to this instance.

        Raises:
            RuntimeError: Each rank has a part of the items, and accelerate reads those of rank 0 alone.
        """
        total, number = self._share()
        ranks = ranks_in_step() if total > 1 else None
        if ranks is None:
            return islice(items, number, None, total)
        worker = dist.worker()
        mine = islice(items, worker.id, None, worker.total)
        if self._leaves_ranks_to_lines:
            return mine
        return chain.from_iterable(dealt(([item] for item in mine), *ranks))

    def _share(self) -> tuple[int, int]:
        found, worker = frameworks.splitter(), dist.worker()
        if self._is_shared_elsewhere:
            if found is not None and found.is_dispatcher and not _is_ours(self.source_datapipe):
                raise RuntimeError(
                    f"sharding_filter leaves each rank a part of the files, and {found.name} reads "
                    "those of rank 0 alone; leave out sharding_filter, for ranks and workers share "
                    "files without it, or set dispatch_batches=False"
                )
            return 1, 0
        if self._instances is None and _is_ours(self.source_datapipe):
            # The one before it shares.
            return 1, 0
        if found is not None:
            return worker.total, worker.id
        if self._instances is not None:
            return self._instances
        if not worker.is_process:
            return 1, 0
        # A dataset around the pipe kept the loader from it.
        rank, world_size = dist.group_rank() or (0, 1)
        return world_size * worker.total, worker.id * world_size + rank


def ranks_in_step() -> tuple[int, int] | None:
    """This rank and how many there are, if they train a model that waits for all of them in every step:
    each must get equally many items then. Else None, also where a framework shares the items."""
    ranks = dist.group_rank()
    if ranks is None or ranks[1] == 1 or frameworks.splitter() is not None:
        return None
    return ranks if frameworks.epoch() is not None or frameworks.trains_in_step() else None


def ranks_of_lines(source: Any) -> tuple[int, int] | None:
    """This rank and how many share the lines of these files, if files would give them different
    numbers of lines and a model waits for all; None if ranks share the files."""
    ranks = ranks_in_step()
    pipes: list[Any] = []
    if isinstance(source, IterDataPipe):
        pipes = graph_settings.get_all_graph_pipes(traverse_dps(source))
    ours = [pipe for pipe in pipes if isinstance(pipe, Shared)]
    if not ours or any(hasattr(pipe, "apply_sharding") for pipe in pipes if pipe not in ours):
        ranks = None
    for pipe in ours:
        pipe._leaves_ranks_to_lines = ranks is not None
    return ranks


def dealt(blocks: Iterable[Iterable[T]], rank: int, world_size: int) -> Iterator[list[T]]:
    """Every n-th item of these blocks. Where the last turn is not whole, ranks that would be one short
    repeat one of the first items."""
    first: list[T] = []
    total = 0
    for block in blocks:
        items = list(block)
        first += items[: world_size - len(first)]
        yield items[(rank - total) % world_size :: world_size]
        total += len(items)
    over = total % world_size
    if over and rank >= over:
        yield [first[(rank - over) % len(first)]]


def _is_shared_before(source: Any) -> bool:
    """Whether a pipe that the items come from shares them."""
    if not isinstance(source, IterDataPipe):
        return False
    pipes = graph_settings.get_all_graph_pipes(traverse_dps(source))
    return any(isinstance(pipe, Shared) or hasattr(pipe, "apply_sharding") for pipe in pipes)


def _is_ours(source: Any) -> bool:
    """Whether a pipe of this class is among those that the items come from."""
    if not isinstance(source, IterDataPipe):
        return False
    pipes = graph_settings.get_all_graph_pipes(traverse_dps(source))
    return any(isinstance(pipe, Shared) for pipe in pipes)
