"""How far a pass over a dataset is, as a small state that any number of ranks goes on from.

A state is a dict of plain numbers and texts, the same size for a thousand samples and for a
thousand million: ``{"forebay": 1, "epoch", "seed", "consumed", "total", "order"}``. ``consumed``
positions of the epoch's order have been delivered by all ranks together; ``order`` shows whether it
is still the same order. Inside a worker process of a loader the state also has a ``part``: the data that
only that worker has. ``resume_state`` makes one state of the parts.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["make_state", "read_state", "resume_state"]

_VERSION = 1


def make_state(
    *, epoch: int, seed: int, consumed: int, total: int, fingerprint: str
) -> dict[str, Any]:
    """A state; ``consumed`` may count beyond the end."""
    return {
        "forebay": _VERSION,
        "epoch": epoch,
        "seed": seed,
        "consumed": min(consumed, total),
        "total": total,
        "order": fingerprint,
    }


def read_state(
    owner: str,
    state: Mapping[str, Any],
    *,
    seed: int,
    total: int,
    fingerprint: str,
    takes_listed: bool = False,
) -> tuple[int, int]:
    """Epoch and consumed positions of a state, once it is known to fit.

    Args:
        takes_listed: Whether the message names ``data="listed"``, for data that grew.

    Raises:
        ValueError: It is of something else, or of another order.
    """
    if not isinstance(state, Mapping) or state.get("forebay") != _VERSION:
        raise ValueError(
            f"{owner}: this is no state that state_dict() made; of the state of a "
            "StatefulDataLoader take resume_state(state)"
        )
    if state["seed"] != seed:
        raise ValueError(f"{owner}: the state is of seed {state['seed']}, this one has {seed}")
    if (state["total"], state["order"]) != (total, fingerprint):
        is_growth = takes_listed and state["total"] < total
        hint = (
            '; if objects came, load_state_dict(state, data="listed") goes on with those of then'
            if is_growth
            else ""
        )
        raise ValueError(
            f"{owner}: the state is of {state['total']} entries, of which this one has {total}, or "
            "the same number in another order: the data or its settings changed since it was saved"
            f"{hint}"
        )
    return state["epoch"], state.get("consumed", 0)


def resume_state(loader_state: Mapping[str, Any]) -> dict[str, Any]:
    """The state of the dataset or sampler inside the state of a ``StatefulDataLoader``.

    A StatefulDataLoader takes its own state back only with the same number of workers. What this
    returns is for ``load_state_dict`` of the dataset, sampler or batch sampler, before a loader of
    any shape is made with it.

    Raises:
        ValueError: There is none inside, or its workers did not deliver in the epoch's order
            because the dataset does not have the loader's ``batch_size``.
    """
    if loader_state.get("_steps_since_snapshot"):
        raise ValueError(
            "resume_state: the loader went on since its last snapshot; make it with "
            "snapshot_every_n_steps=1"
        )
    found = list(_inside(loader_state))
    parts = [state for state in found if "part" in state]
    if not parts:
        if not found:
            raise ValueError("resume_state: no dataset or sampler of Forebay is in this state")
        return dict(found[0])
    shape = {(s["part"]["workers"], s["part"]["world_size"], s["part"]["block"]) for s in parts}
    by_worker = {state["part"]["worker"]: state for state in parts}
    workers, world_size, block = next(iter(shape))
    bases = {(state["epoch"], state.get("consumed"), str(state.get("passes"))) for state in parts}
    if len(shape) != 1 or len(bases) != 1 or sorted(by_worker) != list(range(workers)):
        raise ValueError("resume_state: the states of the workers do not belong together")
    delivered = [by_worker[number]["part"]["delivered"] for number in range(workers)]
    together = sum(delivered)
    state = {key: value for key, value in parts[0].items() if key != "part"}
    if "passes" in state:
        # Only the reader knows its shards, and so whether the workers took turns like this.
        made = [world_size, workers, block, together]
        rank = parts[0]["part"]["rank"]
        checked = [rank, zlib.crc32(repr(delivered).encode())]
        return {**state, "passes": [*state["passes"], made], "checked": checked}
    rounds, rest = divmod(together, block * workers)
    for number, done in enumerate(delivered):
        if done != rounds * block + min(max(rest - number * block, 0), block):
            raise ValueError(
                "resume_state: the workers did not deliver in the epoch's order; give the dataset "
                f"the batch_size of the loader (it has {block})"
            )
    state["consumed"] = min(state["total"], state["consumed"] + together * world_size)
    return state


def _inside(state: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(state, Mapping):
        if "forebay" in state:
            yield state
        else:
            for value in state.values():
                yield from _inside(value)
    elif isinstance(state, list | tuple):
        for value in state:
            yield from _inside(value)
