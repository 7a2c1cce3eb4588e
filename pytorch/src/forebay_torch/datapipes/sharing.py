"""How the ranks and workers of a loader share what a pipe gives."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from torch.utils.data import graph_settings
from torch.utils.data.datapipes.datapipe import IterDataPipe
from torch.utils.data.graph import traverse_dps

from forebay_torch import outside, place

__all__ = ["Shared"]

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

    @property
    def apply_sharding(self) -> Callable[..., None]:
        """Told by a loader how many instances of the pipe there are, and which of them this is.

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
        """Those of the items that are this instance's.

        Raises:
            RuntimeError: Each rank has a part of the items, and accelerate reads those of rank 0 alone.
        """
        total, number = self._share()
        return islice(items, number, None, total)

    def _share(self) -> tuple[int, int]:
        found, worker = outside.splitter(), place.worker()
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
        rank, world_size = place.group_rank() or (0, 1)
        return world_size * worker.total, worker.id * world_size + rank


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
