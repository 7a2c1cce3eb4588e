"""Distributed checkpoints read from the cluster: the ranges of the plan, and little beside."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, cast

from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner
from torch.futures import Future

from forebay import Client, ObjectChanged
from forebay_torch.checkpoint import Checkpoint
from forebay_torch.checkpoint.location import StrPath
from forebay_torch.checkpoint.ranges import coalesced
from forebay_torch.dcp.file_system import FileSystem, InFolder, Planned
from forebay_torch.dcp.metadata import load_metadata

__all__ = ["StorageReader"]

_CONCURRENT_HEADS = 8


class StorageReader(InFolder, FileSystemReader):
    """The ``storage_reader`` of ``torch.distributed.checkpoint`` for a folder in a bucket.

    Of each file come the ranges that the plan needs, in the order of the file and ahead of their
    use. Neighbours are one request; what lies between them adds 8 % at most. The files are those that
    were there when the plan was made: one that is replaced meanwhile fails the load.

    Args:
        path: The folder, as a URI or a ``Path`` made of one; ``checkpoint_id`` of a load prevails.
        project: Accepted for compatibility, unused.
        storage_client: A ``forebay.Client``; by default one from the environment.
        reader_constructor: Accepted for compatibility: the ranges of the plan are read in any case.
        options: More of torch's FileSystemReader.

    Raises:
        ValueError: The path is no URI of a bucket.
    """

    def __init__(
        self,
        path: StrPath,
        project: str | None = None,
        storage_client: Client | None = None,
        *,
        reader_constructor: Any = None,
        **options: Any,
    ) -> None:
        files = FileSystem(Checkpoint(storage_client=storage_client))
        super().__init__(os.fspath(path), **options)
        self._files = files
        self.fs = files  # type: ignore[assignment]  # torch declares its own class
        self.path = files.init_path(path)
        self.project = project

    def reset(self, checkpoint_id: StrPath | None = None) -> None:
        """Begins another load."""
        self._files.expect({})
        super().reset(checkpoint_id)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """The metadata of the checkpoint. Nothing that they name is run but the types of metadata.

        Raises:
            forebay.NotFound: There is no checkpoint.
            forebay.InvalidArgument: They are none, or name other types.
        """
        path = self._get_metadata_path(kwargs.get("rank"))
        with self._files.create_stream(path, "rb") as file:
            metadata = load_metadata(cast(IO[bytes], file), path)
        if getattr(metadata, "storage_meta", None) is None:
            metadata.storage_meta = StorageMeta()
        assert metadata.storage_meta is not None
        metadata.storage_meta.load_id = self.load_id
        return metadata

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """The plan in the order in which its items lie in their files.

        The current versions of the files will be read; if a file changes, the read raises
        ``ObjectChanged``.

        Raises:
            forebay.NotFound: A file of the checkpoint is gone.
            forebay.ObjectChanged: A file is shorter than it was when the checkpoint was saved.
        """
        plan.items.sort(key=lambda item: self._place(item)[:2])
        spans: dict[str, list[tuple[int, int]]] = {}
        for item in plan.items:
            file, start, length = self._place(item)
            spans.setdefault(self._files.concat_path(self.path, file), []).append((start, length))
        with ThreadPoolExecutor(_CONCURRENT_HEADS) as threads:
            found = dict(zip(spans, threads.map(self._files.head, spans), strict=True))
        for file, wanted in spans.items():
            end = max(start + length for start, length in wanted)
            if found[file].size < end:
                raise ObjectChanged(
                    f"{file} has {found[file].size} bytes, and had {end} when it was saved"
                )
        self._files.expect({file: Planned(found[file], coalesced(spans[file])) for file in spans})
        return plan

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Reads what the plan says.

        Raises:
            forebay.ObjectChanged: A file was replaced since the plan was made.
        """
        try:
            return super().read_data(plan, planner)
        finally:
            self._files.expect({})

    def _place(self, item: Any) -> tuple[str, int, int]:
        info = self.storage_data[item.storage_index]
        return info.relative_path, info.offset, info.length
