"""Many single reads at a time, of what batches do not serve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from forebay import _core
from forebay.errors import ForebayError
from forebay.listing import Listing
from forebay.spans import call_span

if TYPE_CHECKING:
    from forebay.bucket import Bucket
    from forebay.client import Client

__all__ = ["check_etl", "get_pinned", "get_transformed", "list_pinned"]

Answers = list[memoryview | ForebayError]


def get_transformed(
    objects: Sequence[tuple[Bucket, str]], etl_name: str, args: str = "", *, concurrency: int = 16
) -> Answers:
    """Returns each object as a transform of the cluster makes it, in order; failures are returned.

    Args:
        etl_name: Of the transform.
        args: Text that it gets with each object.
        concurrency: How many objects are asked for at a time.
    """
    return _each(objects, concurrency, etl=(etl_name, args))


def get_pinned(
    objects: Sequence[tuple[Bucket, str]],
    pins: Sequence[tuple[str, int]],
    *,
    concurrency: int = 16,
) -> Answers:
    """The contents of objects that are still what they were when listed, in their order.

    Failures are returned; of an object that changed it is ``ObjectChanged``.

    Args:
        pins: For each object its row of the second listing of :func:`list_pinned`.
        concurrency: How many objects are asked for at a time.
    """
    known_pins = []
    for text, size in pins:
        version, _, checksum = text.partition("\n")
        known_pins.append((size, version, checksum))
    return _each(objects, concurrency, pins=known_pins)


def list_pinned(bucket: Bucket, prefix: str = "") -> tuple[Listing, Listing]:
    """Names and sizes under ``prefix``, and beside them what pins each object's content."""
    native = bucket.client._native
    with call_span("forebay.list", bucket.uri):
        names, ends, sizes, pins, pin_ends = _core.list_pinned(native, bucket.uri, prefix)
    return Listing.from_buffers(names, ends, sizes), Listing.from_buffers(pins, pin_ends, sizes)


def check_etl(client: Client, name: str) -> None:
    """Raises where the cluster knows no transform of this name.

    Raises:
        NotFound: It does not.
    """
    _core.check_etl(client._native, name)


def _each(
    objects: Sequence[tuple[Bucket, str]],
    concurrency: int,
    etl: tuple[str, str] | None = None,
    pins: list[tuple[int, str, str]] | None = None,
) -> Answers:
    if not objects:
        return []
    buckets: dict[str, int] = {}
    bucket_of = [buckets.setdefault(bucket.uri, len(buckets)) for bucket, _ in objects]
    names = [name for _, name in objects]
    native = objects[0][0].client._native
    with call_span("forebay.get_each", ", ".join(buckets), objects=len(names)) as span:
        answers = _core.get_each(native, list(buckets), bucket_of, names, concurrency, etl, pins)
        span.received(answers)
    return [one if isinstance(one, ForebayError) else memoryview(one) for one in answers]
