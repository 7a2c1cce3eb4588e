"""Fully sharded training of Lightning with its checkpoints in the cluster."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import torch
from lightning.pytorch.strategies import (  # type: ignore[import-not-found,unused-ignore]
    FSDPStrategy as LightningFSDPStrategy,
)
from lightning.pytorch.trainer.states import (  # type: ignore[import-not-found,unused-ignore]
    TrainerFn,
)
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    StateDictType,
)

from forebay import Client
from forebay_torch.checkpoint.catalog import METADATA
from forebay_torch.checkpoint.location import StrPath, locate
from forebay_torch.dcp import StorageReader, StorageWriter, background
from forebay_torch.lightning.checkpoint_io import (
    LightningAsyncCheckpoint,
    LightningCheckpoint,
    check_options,
    is_local,
)

__all__ = ["FSDPStrategy"]

# Lightning's name for what is neither model nor optimizer.
_META = "meta.pt"
_PIECE_BYTES = 16 << 20


class FSDPStrategy(LightningFSDPStrategy):  # type: ignore[misc,unused-ignore]
    """Lightning's FSDPStrategy whose checkpoints are in the cluster.

    With ``state_dict_type="sharded"`` a checkpoint is a folder: files of each rank, ``meta.pt`` by
    rank 0, and ``.metadata`` last. It loads in another number of ranks. With ``"full"`` it is one
    object.

    Args:
        project_name: Accepted for compatibility, unused.
        storage_client: A ``forebay.Client``; by default one from the environment.
        use_async: Save in the background, one checkpoint at a time. The next save, or the teardown
            at the end of ``fit``, waits and raises what failed.
        options: Those of Lightning's FSDPStrategy.
    """

    def __init__(
        self,
        project_name: str | None = None,
        storage_client: Client | None = None,
        use_async: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        kind = LightningAsyncCheckpoint if use_async else LightningCheckpoint
        self.checkpoint_io = kind(project_name, storage_client)
        self.use_async = use_async
        self._files = LightningCheckpoint(project_name, storage_client).checkpoint
        self._has_own_file = False

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: StrPath, storage_options: Any = None
    ) -> None:
        """Saves model, optimizers and the rest; every rank calls it.

        Raises:
            Exception: The error of the save before, with ``use_async``.
            TypeError: ``storage_options`` are given: there are none.
        """
        check_options(self, storage_options)
        if self._state_dict_type != "sharded" or is_local(filepath):
            super().save_checkpoint(checkpoint, os.fspath(filepath))
            return
        background.wait()
        rest = dict(checkpoint)
        state = {"model": rest.pop("state_dict")}
        for number, optimizer in enumerate(rest.pop("optimizer_states", [])):
            state[f"optimizer_{number}"] = optimizer
        uri = self._uri(filepath)
        writer = _Writer(uri, self._files.client, rest)
        if not self.use_async:
            state_dict_saver.save(state, storage_writer=writer)
            return
        background.async_save(state, storage_writer=writer)

    def load_checkpoint(
        self, checkpoint_path: StrPath, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Loads model and optimizers; returns the rest. Every rank calls it.

        Raises:
            NotFound: It is not there.
        """
        background.wait()
        if is_local(checkpoint_path):
            here: dict[str, Any] = super().load_checkpoint(
                os.fspath(checkpoint_path), weights_only
            )
            return here
        uri = self._uri(checkpoint_path)
        place = locate(uri, self._files.client)
        if not list(place.bucket.list_snapshot(place.under() + METADATA).names()):
            return self._load_full(uri, weights_only)
        assert self.model is not None and self.lightning_module is not None
        kind = FullyShardedDataParallel.state_dict_type(
            self.model,
            StateDictType.SHARDED_STATE_DICT,
            ShardedStateDictConfig(offload_to_cpu=True),
            ShardedOptimStateDictConfig(offload_to_cpu=True),
        )
        reader = StorageReader(uri, None, self._files.client)
        with kind:
            state = {"model": self.model.state_dict()}
            state_dict_loader.load(state, storage_reader=reader)
            self.model.load_state_dict(state["model"], strict=self.lightning_module.strict_loading)
            if self.lightning_module.trainer.state.fn == TrainerFn.FITTING:
                for number, optimizer in enumerate(self.optimizers):
                    key = f"optimizer_{number}"
                    loaded = load_sharded_optimizer_state_dict(
                        model_state_dict=state["model"], optimizer_key=key, storage_reader=reader
                    )
                    optimizer.load_state_dict(
                        FullyShardedDataParallel.optim_state_dict_to_load(
                            optim_state_dict=loaded[key], model=self.model, optim=optimizer
                        )
                    )
        with self._files.reader(f"{uri}/{_META}") as file:
            rest: dict[str, Any] = torch.load(file, weights_only=weights_only)
        return rest

    def _load_full(self, uri: str, weights_only: bool | None) -> dict[str, Any]:
        """A checkpoint of one object, by way of a file, which is what Lightning maps into memory."""
        with tempfile.NamedTemporaryFile(suffix=".ckpt") as local:
            with self._files.reader(uri) as reader:
                while piece := reader.read(_PIECE_BYTES):
                    local.write(piece)
            local.flush()
            self._has_own_file = True
            try:
                loaded: dict[str, Any] = super().load_checkpoint(local.name, weights_only)
            finally:
                self._has_own_file = False
        return loaded

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        """Returns the object of rank ``src``; while each rank loads a file of its own, the rank's own."""
        return obj if self._has_own_file else super().broadcast(obj, src)

    def remove_checkpoint(self, filepath: StrPath) -> None:
        """Deletes a checkpoint, once the save under way has succeeded."""
        if self.is_global_zero:
            path = os.fspath(filepath)
            background.after(lambda: self.checkpoint_io.remove_checkpoint(path))

    def teardown(self) -> None:
        """Waits for the save under way.

        Raises:
            Exception: The error of that save.
        """
        try:
            background.wait()
        finally:
            super().teardown()  # type: ignore[no-untyped-call,unused-ignore]

    def _uri(self, path: StrPath) -> str:
        """The URI that rank 0 means."""
        uri: str = self.broadcast(locate(os.fspath(path), self._files.client).uri)
        return uri.rstrip("/")


class _Writer(StorageWriter):
    """Saves what is neither model nor optimizer as well, just before the checkpoint is there."""

    def __init__(self, uri: str, client: Client, rest: dict[str, Any]) -> None:
        super().__init__(uri, None, client)
        self._rest = rest

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        self._files.checkpoint.save(self._rest, f"{self.path}/{_META}")
        super().finish(metadata, results)
