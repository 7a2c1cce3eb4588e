"""Distributed checkpoints read from the cluster: the ranges of the plan, and little beside."""

from __future__ import annotations

import os
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner
from torch.futures import Future

from forebay import Client
from forebay_torch.checkpoint import Checkpoint
from forebay_torch.checkpoint.location import StrPath
from forebay_torch.checkpoint.ranges import coalesced
from forebay_torch.dcp.file_system import FileSystem

__all__ = ["StorageReader"]


class StorageReader(FileSystemReader):
    """The ``storage_reader`` of ``torch.distributed.checkpoint`` for a folder in a bucket.

    Of each file come the ranges that the plan needs, in the order of the file and ahead of their
    use. Neighbours are one request; what lies between them adds 8 % at most.

    Args:
        path: The folder, as a URI or a ``Path`` made of one; ``checkpoint_id`` of a load prevails.
        project: Accepted for compatibility, unused.
        storage_client: A ``forebay.Client``; by default one from the environment.
        options: More of torch's FileSystemReader.

    Raises:
        ValueError: The path is no URI of a bucket.
    """

    def __init__(
        self,
        path: StrPath,
        project: str | None = None,
        storage_client: Client | None = None,
        **options: Any,
    ) -> None:
        files = FileSystem(Checkpoint(storage_client=storage_client))
        super().__init__(os.fspath(path), **options)
        self._files = files
        self.fs = files  # type: ignore[assignment]  # torch declares its own class
        self.path = files.init_path(path)
        self.project = project

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """The plan in the order in which its items lie in their files."""
        plan.items.sort(key=lambda item: self._place(item)[:2])
        return plan

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Reads what the plan says."""
        spans: dict[str, list[tuple[int, int]]] = {}
        for item in plan.items:
            file, start, length = self._place(item)
            spans.setdefault(self._files.concat_path(self.path, file), []).append((start, length))
        self._files.expect({file: coalesced(wanted) for file, wanted in spans.items()})
        try:
            return super().read_data(plan, planner)
        finally:
            self._files.expect({})

    def _place(self, item: Any) -> tuple[str, int, int]:
        info = self.storage_data[item.storage_index]
        return info.relative_path, info.offset, info.length

    def _get_metadata_path(self, rank: int | None = None) -> Any:
        name = ".metadata" if rank is None else f"__{rank}.metadata"
        return self._files.concat_path(self.path, name)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: StrPath) -> bool:
        """Whether it is a URI of a bucket."""
        return FileSystem.validate_checkpoint_id(checkpoint_id)
