"""Frameworks that share samples among ranks by themselves, or that count epochs.

accelerate, Lightning and others wrap a loader, a sampler or a dataset, and each rank of theirs reads
all samples and takes a part of them. A dataset or sampler that shares among ranks, too, would lose
all other parts in silence. Their wrappers are on the call stack whenever a pass begins, or a length is
asked for; a forked worker has the stack of the process that it was forked from.
"""

from __future__ import annotations

import gc
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple, TypeVar

import torch
from torch.utils.data import DataLoader, RandomSampler, default_collate
from torch.utils.data.distributed import DistributedSampler

__all__ = [
    "Loader",
    "Splitter",
    "checked",
    "epoch",
    "is_called_by_lightning",
    "is_loader_of",
    "is_loading_finished_pass",
    "is_pass_dropped",
    "is_predicting",
    "loader",
    "requests_of_loader",
    "share_random_order",
    "splitter",
    "trains_in_step",
    "unloaded_state",
]

T = TypeVar("T")

# The methods of wrappers from which others are called.
_CALLING = frozenset(("__init__", "__iter__", "__len__", "__next__"))
_LIGHTNING = frozenset(("lightning", "lightning_fabric", "pytorch_lightning"))
_RANDOM_ITER = RandomSampler.__iter__.__code__
_ACCELERATE = frozenset(("BatchSamplerShard", "DataLoaderShard", "IterableDatasetShard"))


# Models that ranks of this job train together.
_models_in_step: weakref.WeakSet[Any] = weakref.WeakSet()


class Splitter(NamedTuple):
    """A wrapper that shares the samples among ranks.

    Attributes:
        name: Its name, for messages.
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


def trains_in_step() -> bool:
    """Whether ranks of this job train a model and wait for each other in every step of it.

    Such a model is of DistributedDataParallel or of FSDP, in training mode and outside of ``join()``. A
    loop without gradients evaluates: ranks of different lengths do not wait there.
    """
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return False
    if distributed.get_world_size() < 2 or not torch.is_grad_enabled():
        return False
    # A search looks at every object of the process, so a model that was found is remembered.
    if any(map(_waits_for_all, _models_in_step)):
        return True
    kinds = tuple(_kinds_in_step())
    # Instances are what refers to a class, besides its subclasses and functions.
    _models_in_step.update(found for found in gc.get_referrers(*kinds) if isinstance(found, kinds))
    return any(map(_waits_for_all, _models_in_step))


def _kinds_in_step() -> Iterator[type[Any]]:
    known = [torch.nn.parallel.DistributedDataParallel]
    fsdp = sys.modules.get("torch.distributed.fsdp")
    for name in ("FullyShardedDataParallel", "FSDPModule"):
        known += [getattr(fsdp, name)] if hasattr(fsdp, name) else []
    while known:
        kind = known.pop()
        yield kind
        known += kind.__subclasses__()


def _waits_for_all(model: Any) -> bool:
    """Whether it trains, and a rank that is done does not let the others go on: ``with model.join():``."""
    config = getattr(model, "_join_config", None)
    return bool(model.training) and not (config is not None and config.enable)


def requests_of_loader() -> tuple[int, bool] | None:
    """How many samples a loader asks for at a time, and whether it leaves out the last of them if they
    are fewer; None if no loader calls."""
    for frame, own in _callers(frozenset(("fetch", "_grouped"))):
        if type(own).__module__ == "forebay_torch.thread_loader":
            return own.batch_size or 1, own._drop_last
        wanted = frame.f_locals.get("possibly_batched_index")
        if wanted is not None:
            is_batch = bool(own.auto_collation)
            return (len(wanted), bool(own.drop_last)) if is_batch else (1, False)
    return None


def unloaded_state(
    owner: str, is_mine: Callable[[Any], bool]
) -> tuple[Any, Mapping[str, Any]] | None:
    """A loader and its state that Lightning has restored and never loads, if a pass begins without it.

    Lightning loads the states when it makes the loaders. If ``configure_optimizers`` asks how many
    steps there are, it makes the loaders before it restores the checkpoint. The owner of the
    pass then loads the state. Loaders that no pass finds stay at the beginning, as those of torch do.

    Args:
        owner: Name of the object that begins the pass, for the warning of such a loader.
        is_mine: Whether a loader is the one of this pass.
    """
    early = None
    for frame, own in _callers(None):
        kinds = {kind.__name__ for kind in type(own).__mro__}
        if kinds & {"_EvaluationLoop", "_PredictionLoop"}:
            return None
        if "_FitLoop" in kinds:
            if frame.f_code.co_name == "setup_data":
                # Lightning loads the states itself, unless it is too early for that.
                early = own
                continue
            if early is not None or not own.restarting:
                return None
            return _state_for(owner, is_mine, own, own._combined_loader_states_to_load)
        if early is not None and frame.f_code.co_name == "estimated_stepping_batches":
            loaded: Any = own._checkpoint_connector._loaded_checkpoint
            for part in ("loops", "fit_loop", "state_dict"):
                loaded = loaded.get(part, {})
            return _state_for(owner, is_mine, early, loaded.get("combined_loader", []))
    return None


def _state_for(
    owner: str, is_mine: Callable[[Any], bool], fit_loop: Any, states: Sequence[Mapping[str, Any]]
) -> tuple[Any, Mapping[str, Any]] | None:
    if not states:
        return None
    every = fit_loop._combined_loader.flattened
    stateful = [loader for loader in every if hasattr(loader, "load_state_dict")]
    for loader, state in zip(stateful, states, strict=False):
        if is_mine(loader):
            return loader, state
    warnings.warn(
        f"{owner}: Lightning made the loaders before it restored the checkpoint, and does not load "
        "their state: samples come again that this epoch had. A hook like configure_optimizers asks "
        "for trainer.estimated_stepping_batches: compute that number there, or ask for it in "
        "on_train_start",
        stacklevel=4,
    )
    return None


def is_loader_of(loader: Any, part: Any) -> bool:
    """Whether a StatefulDataLoader has this as dataset, cursor of its dataset, or sampler."""
    if not type(loader).__module__.startswith("torchdata."):
        return False
    batches = getattr(loader, "batch_sampler", None)
    dataset = loader.dataset
    parts = (
        dataset,
        getattr(dataset, "_cursor", None),
        loader.sampler,
        batches,
        getattr(batches, "sampler", None),
    )
    return any(part is one for one in parts)


def is_predicting() -> bool:
    """Whether Lightning predicts, in which ranks need not be equally long."""
    return any(
        type(own).__name__ == "_IndexBatchSamplerWrapper" and _package(frame) in _LIGHTNING
        for frame, own in _callers()
    )


def share_random_order() -> None:
    """Makes all ranks draw one order, if Lightning splits a ``RandomSampler`` that asks for a length.

    For predictions Lightning gives each rank every n-th entry of an order that the rank draws by
    itself. Samples would be missing, and others come twice. To be called by ``__len__``.
    """
    frame = sys._getframe(2)
    sampler = frame.f_locals.get("self") if frame.f_code is _RANDOM_ITER else None
    if sampler is None or sampler.generator is not None:
        return
    for _, own in _callers(None):
        if type(own).__name__ == "UnrepeatedDistributedSamplerWrapper":
            generator = torch.Generator()
            sampler.generator = generator.manual_seed(own.seed + own.epoch)
            return


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
