"""Slices of objects, ``content[start:end]`` as Python means it: of one, and of many as batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from forebay.client import Client
from forebay.errors import ForebayError, InvalidArgument
from forebay.object import Object
from forebay.spans import carried

__all__ = ["Slice", "read_slice", "read_slices"]

Slice = tuple[Object, int | None, int | None]

# Entries of one batch.
_SLICES_PER_REQUEST = 4096
# Threads that read what a batch does not serve.
_THREADS = 16
_RANGE_BYTES = 8 << 20


def read_slice(wanted: Slice, num_workers: int = 4) -> bytes:
    """The bytes of one slice; what is large by so many ranges at once."""
    item, start, end = wanted
    byte_range = _range(start, end, lambda: item.head().size)
    if byte_range == "":
        return b""
    native, uri = item.bucket.client._native, item.bucket.uri
    try:
        return bytes(
            native.get_in_ranges(uri, item.name, byte_range, _RANGE_BYTES, num_workers)
        )
    except InvalidArgument as error:
        # It begins behind the end.
        if error.code == "range_not_satisfiable":
            return b""
        raise


def read_slices(client: Client, wanted: Sequence[Slice]) -> list[bytes | ForebayError]:
    """The bytes of each slice, or why there are none; one request per target and 4096 slices."""
    answers: list[bytes | ForebayError] = []
    for at in range(0, len(wanted), _SLICES_PER_REQUEST):
        answers += _read_batch(client, wanted[at : at + _SLICES_PER_REQUEST])
    return answers


def _read_batch(client: Client, wanted: Sequence[Slice]) -> list[bytes | ForebayError]:
    batch = client.batch(on_error="return")
    answers: list[bytes | ForebayError] = [b""] * len(wanted)
    asked: list[int] = []
    alone: list[int] = []
    for at, (item, start, end) in enumerate(wanted):
        first = start or 0
        if first < 0 or (end or 0) < 0:
            alone.append(at)
        elif end is None or end > first:
            whole = first == 0 and end is None
            length = None if end is None else end - first
            batch.add(item, start=None if whole else first, length=length)
            asked.append(at)
    for at, (result, content) in zip(asked, batch.get_all(), strict=True):
        if result.error is None:
            answers[at] = bytes(content)
        elif wanted[at][1:] == (None, None):
            answers[at] = result.error
        else:
            # A slice may reach behind the end of an object; an entry of a batch must not.
            alone.append(at)

    def read_one(at: int) -> None:
        try:
            answers[at] = read_slice(wanted[at])
        except ForebayError as error:
            answers[at] = error

    if alone:
        with ThreadPoolExecutor(min(_THREADS, len(alone)), "forebay-slices") as threads:
            list(threads.map(carried(read_one), alone))
    return answers


def _range(start: int | None, end: int | None, size: Callable[[], int]) -> str | None:
    """The Range header of a slice; None for all of it, empty for nothing."""
    if end is None and not start:
        return None
    if end is None and start is not None and start < 0:
        return f"bytes={start}"
    if (start or 0) < 0 or (end or 0) < 0:
        start, end, _ = slice(start, end).indices(size())
    first = start or 0
    if end is None:
        return f"bytes={first}-"
    return f"bytes={first}-{end - 1}" if end > first else ""
