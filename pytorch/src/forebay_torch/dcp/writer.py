"""Distributed checkpoints written to the cluster."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pickle
import warnings
from typing import IO, Any, cast

from torch.distributed.checkpoint import filesystem
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from forebay import Client
from forebay_torch.checkpoint import Checkpoint
from forebay_torch.checkpoint.location import StrPath
from forebay_torch.dcp.file_system import FileSystem, InFolder
from forebay_torch.dcp.metadata import load_metadata
from forebay_torch.dcp.prefix import DefaultPrefixStrategy, PrefixStrategy

__all__ = ["PREFIX_MAP", "StorageWriter"]

# Beside the files of a checkpoint with a strategy: which prefix each rank has.
PREFIX_MAP = "prefix_map.json"


@dataclasses.dataclass(frozen=True)
class _Prefix:
    """The data that torch passes from the plan to the writing of files."""

    prefix: str


class StorageWriter(InFolder, filesystem.FileSystemWriter):
    """The ``storage_writer`` of ``torch.distributed.checkpoint`` for a folder in a bucket.

    Each rank writes files of its own, whose names are new in each save. The coordinator writes
    ``.metadata`` last, in place, and then deletes the files of the checkpoint that was there: until
    that moment the old one can be loaded, whatever happens, and from then on the new one.

    Args:
        path: The folder, as a URI or a ``Path`` made of one; ``checkpoint_id`` of a save prevails.
        project: Accepted for compatibility, unused.
        storage_client: A ``forebay.Client``; by default one from the environment.
        thread_count: Files that a rank writes at once.
        prefix_strategy: How the names of a rank's files begin. Which rank has which is saved
            in ``prefix_map.json``.
        overwrite: Whether a checkpoint may be replaced, with a warning; else that is a
            ``RuntimeError``.
        part_size: Bytes of a part, 16 MiB by default.
        concurrency: Parts in memory at most, of all files of a rank; at least 3 for each file.
        options: More of torch's FileSystemWriter, such as ``single_file_per_rank``.

    Raises:
        ValueError: The path is no URI of a bucket, or a number makes no sense.
    """

    def __init__(
        self,
        path: StrPath,
        project: str | None = None,
        storage_client: Client | None = None,
        thread_count: int = 1,
        *,
        prefix_strategy: PrefixStrategy | None = None,
        overwrite: bool = True,
        part_size: int = 16 << 20,
        concurrency: int = 8,
        **options: Any,
    ) -> None:
        if thread_count < 1:
            raise ValueError(f"thread_count must be at least 1, not {thread_count}")
        files = FileSystem(
            Checkpoint(
                storage_client=storage_client,
                part_size=part_size,
                concurrency=max(3, concurrency // thread_count),
            )
        )
        # An object is stored durably or not at all: there is nothing to sync.
        options.setdefault("sync_files", False)
        super().__init__(
            os.fspath(path), thread_count=thread_count, overwrite=overwrite, **options
        )
        self._files = files
        self.fs = files  # type: ignore[assignment]  # torch declares its own class
        self.path = files.init_path(path)
        self.project = project
        self.prefix_strategy = prefix_strategy
        self._prefixes: list[str] = []

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """The plan of this rank, with its prefix where ranks do not talk to each other."""
        plan = super().prepare_local_plan(plan)
        rank = getattr(self, "rank", None)
        if plan.storage_data is not None and rank is not None:
            plan = dataclasses.replace(plan, storage_data=_Prefix(self._prefix(rank)))
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """The plans of all ranks, each with the prefix of its files."""
        self._prefixes = [self._prefix(rank) for rank in range(len(plans))]
        return [
            plan
            if isinstance(plan.storage_data, _Prefix)
            else dataclasses.replace(plan, storage_data=_Prefix(prefix))
            for plan, prefix in zip(plans, self._prefixes, strict=True)
        ]

    def _prefix(self, rank: int) -> str:
        strategy = self.prefix_strategy or DefaultPrefixStrategy()
        # Of this save alone: files of the checkpoint that it replaces are never written over.
        return f"{strategy(rank)}{self.save_id[:8]}_"

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Writes the files of this rank.

        Raises:
            Exception: The error of any of its threads.
        """
        self._files.take_failure()
        written = super().write_data(plan, planner)
        # torch's threads keep their failures to themselves.
        failure = self._files.take_failure()
        if failure is not None:
            raise failure
        missing = len(plan.items) - len(written.value())
        if missing:
            raise RuntimeError(f"{missing} of {len(plan.items)} items of {self.path} not written")
        return written

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Makes the checkpoint: writes its ``.metadata`` over that of the one before."""
        version = getattr(filesystem, "CURRENT_DCP_VERSION", None)
        if version is not None:
            metadata.version = version
        metadata.storage_data = {
            result.index: result.storage_data for of_rank in results for result in of_rank
        }
        metadata.storage_meta = self.storage_meta()
        alone = getattr(self, "use_collectives", True) is False
        path = self._get_metadata_path(self.rank) if alone else self._get_metadata_path()
        before = self._files_of(path)
        if self.prefix_strategy is not None:
            with self._files.create_stream(self._files.concat_path(self.path, PREFIX_MAP), "wb") as file:
                file.write(json.dumps(dict(enumerate(self._prefixes))).encode())
        with self._files.create_stream(path, "wb") as file:
            pickle.dump(metadata, file)
        after = {info.relative_path for info in metadata.storage_data.values()}
        for name in sorted(before - after):
            # The new checkpoint is there; what stays of the old one only takes room.
            with contextlib.suppress(Exception):
                self._files.rm_file(self._files.concat_path(self.path, name))

    def _files_of(self, path: StrPath) -> set[str]:
        """The files of the checkpoint whose metadata is here."""
        if not self._files.exists(path):
            return set()
        try:
            with self._files.create_stream(path, "rb") as file:
                metadata = load_metadata(cast(IO[bytes], file), str(path))
            return {info.relative_path for info in (metadata.storage_data or {}).values()}
        except Exception as error:
            warnings.warn(
                f"{path} is replaced, but it cannot be read, so its files stay: {error}",
                stacklevel=2,
            )
            return set()
