"""Notices: lines on stderr about what a client does by itself, each printed once in a process."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from forebay._platform import needs_endpoint
from forebay.config import find_endpoint, notices_enabled
from forebay.errors import ClusterUnavailable, ForebayError, Timeout

if TYPE_CHECKING:
    from forebay.bucket import Bucket

__all__ = ["ListingCost", "format_size", "print_notice", "print_platform_notice"]

_listed: set[tuple[str, str]] = set()


def print_notice(text: str) -> None:
    """Prints one notice, with the setting that hides it."""
    print(f"forebay: {text} (FOREBAY_NOTICES=off hides this line)", file=sys.stderr)


def print_platform_notice() -> None:
    """Prints that an endpoint is needed, on a system that can run no server and where none is set."""
    problem = needs_endpoint()
    if problem is not None and find_endpoint() is None and notices_enabled():
        print_notice(problem)


def format_size(size: int) -> str:
    """A size in bytes with a unit, such as ``20 GiB``."""
    for exponent, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << exponent:
            shown = size / (1 << exponent)
            return f"{shown:.0f} {unit}" if shown >= 100 else f"{shown:.3g} {unit}"
    return f"{size} bytes"


class ListingCost:
    """The cost of the first listing of a bucket at its cloud.

    The cluster counts the pages that the cloud sends for a bucket; the difference of two counts is
    the cost. If several clients list the same bucket at once, each of them sees the sum.
    """

    __slots__ = ("_bucket", "_before")

    def __init__(self, bucket: Bucket, before: tuple[int, int]) -> None:
        self._bucket = bucket
        self._before = before

    @classmethod
    def begin(cls, bucket: Bucket) -> ListingCost | None:
        """Reads the counts before a listing; None if the notice is off, was printed or cannot be had."""
        client = bucket.client
        key = (client.endpoint, bucket.uri)
        if key in _listed or not notices_enabled(client._notices):
            return None
        _listed.add(key)
        try:
            return cls(bucket, _count(bucket))
        except (ClusterUnavailable, Timeout):
            raise  # The listing would wait for the same cluster once more.
        except ForebayError:
            return None

    def print(self, prefix: str, objects: int) -> None:
        """Prints the notice. A listing that the cluster kept cost nothing and has none."""
        try:
            pages, size = _count(self._bucket)
        except ForebayError:
            return
        pages, size = pages - self._before[0], size - self._before[1]
        if pages > 0:
            requests = f"{pages:,} request{'s' if pages > 1 else ''}"
            print_notice(
                f"listed {self._bucket.uri}/{prefix} with {requests} to the cloud, {format_size(size)}: "
                f"{objects:,} objects; the cluster keeps the listing"
            )


def _count(bucket: Bucket) -> tuple[int, int]:
    """Pages of listings that the bucket's cloud has sent so far, and their bytes."""
    bill = json.loads(bucket.client._native.bucket_bill(bucket.uri))
    return bill.get("listing_pages", 0), bill.get("listing_bytes", 0)
