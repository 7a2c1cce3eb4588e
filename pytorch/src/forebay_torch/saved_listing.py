"""Finds the objects that a bucket had when a state was saved among those that it has now.

A state has a fingerprint of the objects that were listed, and no names. Objects that were added since
are the newest ones, and often the last ones by name. So the saved objects are the first by name or the
oldest, if none of them was deleted or written again. The fingerprint decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from forebay import Listing

__all__ = ["SavedListing", "check_data", "refuse_listed", "rows_at_save"]

_REQUESTS_AT_A_TIME = 16


def check_data(owner: str, data: Any) -> None:
    """Refuses a value of ``data`` that ``load_state_dict`` does not take.

    Raises:
        ValueError: It is neither ``"same"`` nor ``"listed"``.
    """
    if data not in ("same", "listed"):
        raise ValueError(f'{owner}: data is "same" or "listed", not {data!r}')


def refuse_listed(owner: str, data: Any, state: Any, total: int, fingerprint: str) -> None:
    """Refuses ``data="listed"`` for a dataset whose order depends on the lengths of several listings,
    unless the state is of what the dataset has now.

    Raises:
        ValueError: The data is not the same; or ``data`` is neither ``"same"`` nor ``"listed"``.
    """
    check_data(owner, data)
    if data == "same" or not isinstance(state, Mapping):
        return
    if (state.get("total"), state.get("order")) != (total, fingerprint):
        raise ValueError(
            f"{owner}: the data changed since the state was saved, and the order of an epoch depends on "
            'the length of every part: data="listed" finds no listing of then. Finish the epoch with '
            "the objects of then, named one by one, or begin a new epoch"
        )


class SavedListing:
    """Some of the objects of a dataset, for samplers.

    Attributes:
        objects: Their names and sizes.
        rows: Their places in the dataset.
    """

    def __init__(self, source: Any, rows: Sequence[int]) -> None:
        self.objects = Listing.from_pairs(map(source.objects.__getitem__, rows))
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)


def rows_at_save(
    owner: str, source: Any, count: int, is_listing: Callable[[Sequence[int]], bool]
) -> Sequence[int]:
    """The places of the objects of a dataset that it had when it had ``count``.

    They are the first by name, or the oldest. To find the oldest, the time of each object is requested,
    which has whole seconds.

    Args:
        is_listing: Whether the objects in these places are those of then.

    Raises:
        ValueError: They are not there any more, or cannot be distinguished from others.
    """
    total = len(source.objects)
    if count >= total:
        raise ValueError(
            f"{owner}: the state is of {count} objects, and the dataset has {total}: "
            'data="listed" goes on where objects came, not where they were deleted or changed'
        )
    for rows in _candidates(source, count):
        if is_listing(rows):
            return rows
    raise ValueError(
        f"{owner}: the {count} objects that the state is of are not among the {total} of the dataset: "
        "they are neither the first by name nor the oldest. Some of them were deleted or written "
        "again since, or other settings make the order"
    )


def _candidates(source: Any, count: int) -> Iterator[Sequence[int]]:
    yield range(count)
    index: Any = getattr(source, "_index", None)
    objects: Any = source.objects
    if index is None or len(index.listing) != len(objects):
        return

    def modified(row: int) -> float:
        return float(index.bucket(row).object(objects.name(row)).head().mtime)

    with ThreadPoolExecutor(_REQUESTS_AT_A_TIME) as pool:
        times = list(pool.map(modified, range(len(objects))))
    oldest = sorted(range(len(times)), key=times.__getitem__)[:count]
    yield sorted(oldest)
