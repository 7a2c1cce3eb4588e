"""Frameworks that share samples among ranks by themselves, or that count epochs.

accelerate, Lightning and others wrap a loader, a sampler or a dataset, and each rank of theirs reads
all samples and takes a part of them. A dataset or sampler that shares among ranks, too, would lose
all other parts in silence. Their wrappers are on the call stack whenever a pass begins, or a length is
asked for; a forked worker has the stack of the process that it was forked from.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple, TypeVar

from torch.utils.data import DataLoader, default_collate
from torch.utils.data.distributed import DistributedSampler

__all__ = [
    "Loader",
    "Splitter",
    "checked",
    "epoch",
    "is_called_by_lightning",
    "is_loading_finished_pass",
    "is_pass_dropped",
    "is_predicting",
    "loader",
    "refuse_unloaded_state",
    "splitter",
]

T = TypeVar("T")

# The methods of wrappers from which others are called.
_CALLING = frozenset(("__init__", "__iter__", "__len__", "__next__"))
_LIGHTNING = frozenset(("lightning", "lightning_fabric", "pytorch_lightning"))
_ACCELERATE = frozenset(("BatchSamplerShard", "DataLoaderShard", "IterableDatasetShard"))


class Splitter(NamedTuple):
    """A wrapper that shares the samples among ranks.

    Attributes:
        name: What it is called, for messages.
        is_dispatcher: Whether rank 0 reads all samples and sends others theirs.
        block: How many samples the wrapper takes at a time, if it takes them of a dataset.
        collates_plainly: Whether a loader inside makes batches as torch does by default.
    """

    name: str
    is_dispatcher: bool = False
    block: int | None = None
    collates_plainly: bool = False


class Loader(NamedTuple):
    """A loader that computes its length of that of its dataset.

    Attributes:
        workers: How many processes or threads make its batches, at least two.
        batch_size: Samples in a batch, or what a framework takes of a worker at a time.
        drop_last: Whether each worker leaves out its last batch, if that is not full.
    """

    workers: int
    batch_size: int
    drop_last: bool

    def length(self, counts: Sequence[int], total: int) -> int:
        """The length of a dataset that makes the loader's as long as it will be.

        Loaders divide the number of samples by the batch size. But each worker has a last batch that
        is not full, and a framework would leave out the batches at the end.

        Args:
            counts: How many samples each worker delivers.
            total: How many that is together.
        """
        size = self.batch_size
        if self.drop_last:
            return sum(count // size for count in counts) * size
        batches = sum(-(-count // size) for count in counts)
        return max(total, (batches - 1) * size + 1) if batches else total


def loader() -> Loader | None:
    """The loader that asks for the length of a dataset, if it has several workers."""
    for _, own in _callers(frozenset(("__len__",))):
        # A loader of accelerate is none, but says so.
        if issubclass(type(own), DataLoader):
            found = splitter()
            size = own.batch_size if found is None else found.block
            shape = Loader(own.num_workers, size or 1, own.drop_last)
        elif type(own).__module__ == "forebay_torch.thread_loader":
            shape = Loader(own._threads, own.batch_size or 1, own._drop_last)
        else:
            continue
        return shape if shape.workers > 1 else None
    return None


def splitter() -> Splitter | None:
    """The wrapper that calls, nearest first; None if there is none."""
    for frame, own in _callers():
        kinds = type(own).__mro__
        package = _package(frame)
        if any(kind.__module__.startswith("forebay_torch.") for kind in kinds):
            continue
        if isinstance(own, DistributedSampler):
            return Splitter(_name(own))
        if package not in ("accelerate", "transformers"):
            continue
        names = {kind.__name__ for kind in kinds}
        if "DataLoaderDispatcher" in names:
            loader = getattr(own, "base_dataloader", None)
            return Splitter(
                "accelerate's DataLoaderDispatcher",
                is_dispatcher=own.state.num_processes > 1 if hasattr(own, "state") else True,
                block=getattr(loader, "batch_size", None),
                collates_plainly=getattr(loader, "collate_fn", None) is default_collate,
            )
        if "IterableDatasetShard" in names:
            parts = 1 if own.split_batches else own.num_processes
            return Splitter(_name(own), block=(own.batch_size or 1) * parts)
        if names & _ACCELERATE:
            return Splitter(_name(own))
    return None


def epoch() -> int | None:
    """The epoch that Lightning trains, if Lightning's fit loop calls."""
    for frame, own in _callers(None):
        if _package(frame) not in _LIGHTNING:
            continue
        names = {kind.__name__ for kind in type(own).__mro__}
        if "_EvaluationLoop" in names or "_PredictionLoop" in names:
            return None
        if "_FitLoop" in names:
            return int(own.epoch_progress.current.processed)
    return None


def refuse_unloaded_state(owner: str) -> None:
    """Raises if Lightning begins to train with a state of its loaders that it never loads.

    Lightning loads it when it makes the loaders. If ``configure_optimizers`` asks how many steps there
    are, it makes the loaders before it restores the checkpoint.

    Raises:
        RuntimeError: Samples would be lost and others come twice.
    """
    for frame, own in _callers(None):
        kinds = {kind.__name__ for kind in type(own).__mro__}
        if kinds & {"_EvaluationLoop", "_PredictionLoop"}:
            return
        if "_FitLoop" in kinds:
            if frame.f_code.co_name != "setup_data" and getattr(
                own, "_combined_loader_states_to_load", None
            ):
                raise RuntimeError(
                    f"{owner}: Lightning made the loaders before it restored the checkpoint, and does "
                    "not load their state: samples would be lost and others come twice. A hook like "
                    "configure_optimizers asks for trainer.estimated_stepping_batches: compute that "
                    "number there, or ask for it in on_train_start"
                )
            return


def is_predicting() -> bool:
    """Whether Lightning predicts, in which ranks need not be equally long."""
    return any(
        type(own).__name__ == "_IndexBatchSamplerWrapper" and _package(frame) in _LIGHTNING
        for frame, own in _callers()
    )


def is_loading_finished_pass() -> bool:
    """Whether a StatefulDataLoader loads a state that it saved at the end of a pass."""
    return _loading() is not None


def is_pass_dropped() -> bool:
    """Whether the pass that begins is one that a StatefulDataLoader drops unread.

    If its state is of the end of a pass, its workers first read ahead from the place in the state.
    Then it begins a pass anew.
    """
    found = _loading()
    return found is not None and found._num_workers > 0


def _loading() -> Any:
    """The iterator of a StatefulDataLoader that is being made from a state of the end of a pass."""
    for frame, own in _callers(frozenset(("__init__",))):
        state = frame.f_locals.get("next_iter_state")
        if isinstance(state, Mapping) and state.get("_iterator_finished"):
            return own
    return None


def is_called_by_lightning(depth: int = 2) -> bool:
    """Whether a function of Lightning called the caller's function."""
    return _package(sys._getframe(depth)) in _LIGHTNING


def checked(owner: str, samples: Iterable[T]) -> Iterator[T]:
    """The samples; if a dispatcher takes them, once the first is known to be of tensors.

    Raises:
        TypeError: A dispatcher takes them and cannot send them.
    """
    found = splitter()
    iterator = iter(samples)
    if found is None or not found.is_dispatcher or not found.collates_plainly:
        return iterator
    return _of_tensors(owner, found, iterator)


def _of_tensors(owner: str, found: Splitter, samples: Iterator[T]) -> Iterator[T]:
    for first in samples:
        if any(isinstance(leaf, str | bytes | memoryview) for leaf in _leaves(first)):
            raise TypeError(
                f"{owner}: {found.name} sends only tensors to other ranks, and these samples have "
                "texts or bytes; set dispatch_batches=False: "
                "Accelerator(dataloader_config=DataLoaderConfiguration(dispatch_batches=False)), or "
                'accelerator_config={"dispatch_batches": False} of TrainingArguments; or make '
                "tensors of the samples"
            )
        yield first
        break
    yield from samples


def _leaves(sample: Any) -> Iterator[Any]:
    if isinstance(sample, dict):
        for value in sample.values():
            yield from _leaves(value)
    elif isinstance(sample, list | tuple):
        for value in sample:
            yield from _leaves(value)
    else:
        yield sample


def _callers(names: frozenset[str] | None = _CALLING) -> Iterator[tuple[FrameType, Any]]:
    """The methods that are being called, nearest first, each with its object."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if code.co_argcount and code.co_varnames[0] == "self":
            if code.co_name in names if names is not None else _package(frame) in _LIGHTNING:
                own = frame.f_locals.get("self")
                if own is not None:
                    yield frame, own
        frame = frame.f_back


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _name(own: Any) -> str:
    kind = type(own)
    return f"{kind.__name__} of {kind.__module__.partition('.')[0]}"
