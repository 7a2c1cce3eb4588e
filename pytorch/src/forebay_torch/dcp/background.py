"""Distributed checkpoints saved in the background, one at a time."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint import state_dict_saver

from forebay_torch.checkpoint import SaveFuture
from forebay_torch.checkpoint.in_flight import InFlight

__all__ = ["after", "async_save", "wait"]

# Of this process, which is one rank of the save.
_in_flight = InFlight()
# The group of all ranks, and the one that they save by. Code that destroys them has to end their
# threads with that: threads that outlive it abort an interpreter that is being torn down.
_groups: tuple[weakref.ref[Any], weakref.ref[Any]] | None = None


def async_save(state_dict: dict[str, Any], **options: Any) -> SaveFuture:
    """``torch.distributed.checkpoint.async_save``, after the save before has ended on this rank.

    Two of them at once would mix up their messages between ranks, and so would a save and a
    training: without a ``process_group`` the ranks save by a gloo group of their own. Every rank
    calls it.

    Args:
        state_dict: The state to save; copied to the memory of the CPU before this returns.
        options: Those of torch: ``storage_writer``, ``checkpoint_id``, ``process_group``, ….

    Raises:
        Exception: The error of the save before, unless ``result()`` or ``exception()`` reported it;
            nothing is saved then.
    """
    _in_flight.wait()
    if options.get("process_group") is None and not options.get("no_dist"):
        options["process_group"] = _own_group()
    saving: Any = state_dict_saver.async_save(state_dict, **options)
    return _in_flight.follow(getattr(saving, "upload_completion", saving))


def _own_group() -> Any:
    """A group of all ranks that nothing but saves uses; None where there is one rank."""
    global _groups
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return None
    everybody = dist.group.WORLD
    own = _groups[1]() if _groups is not None and _groups[0]() is everybody else None
    if own is None:
        own = dist.new_group(backend="gloo")
        _groups = weakref.ref(everybody), weakref.ref(own)
    return own


def wait() -> None:
    """Waits for the save under way.

    Raises:
        Exception: Its error, unless that was reported.
    """
    _in_flight.wait()


def after(step: Callable[[], None]) -> None:
    """Runs ``step`` when the save under way has succeeded on this rank; at once when there is none."""
    _in_flight.after(step)
