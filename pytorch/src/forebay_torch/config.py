"""Settings of a dataset, under the names that Dataflux users know."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from forebay import Retry

__all__ = ["Config"]


@dataclass(frozen=True, slots=True)
class Config:
    """How a dataset lists and reads.

    Attributes:
        sort_listing_results: Kept for compatibility: a listing is always in name order.
        max_composite_object_size: Most bytes to ask for in one batch request; 0 reads objects one
            by one. The dataset composes nothing in the bucket; targets do with ``cloud.compose=on``.
        num_processes: Kept for compatibility: the cluster lists, not the client.
        prefix: Only objects whose names start so.
        max_listing_retries: How often a listing that failed for a transient reason is retried,
            beyond the client's own retries.
        threads_per_process: Kept for compatibility, as ``num_processes``.
        disable_compose: Read objects one by one.
        list_retry_config: How targets try the cloud again for this dataset's listings: a
            ``forebay.Retry``, or one of google.api_core's. Pauses and deadline are kept exactly
            unless the retry has jitter; by default the bucket's settings hold.
        download_retry_config: The same for reads.

    Raises:
        ValueError: A number makes no sense.
        TypeError: A retry is none, or an argument is unknown.
    """

    sort_listing_results: bool = False
    max_composite_object_size: int = 100_000_000
    num_processes: int = field(default_factory=lambda: os.cpu_count() or 1)
    prefix: str | None = None
    max_listing_retries: int = 3
    threads_per_process: int = 1
    disable_compose: bool = False
    list_retry_config: Retry | None = None
    download_retry_config: Retry | None = None

    def __post_init__(self) -> None:
        if self.max_composite_object_size < 0:
            raise ValueError("max_composite_object_size must not be negative")
        if self.max_listing_retries < 0:
            raise ValueError("max_listing_retries must not be negative")
        for name in ("list_retry_config", "download_retry_config"):
            # Frozen: this is still the making of it.
            object.__setattr__(self, name, Retry.of(getattr(self, name)))

    @property
    def batch_bytes(self) -> int:
        """Most bytes in one batch request; 0 means no batches."""
        return 0 if self.disable_compose else self.max_composite_object_size
