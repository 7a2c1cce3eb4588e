"""Whole objects, by batch requests of a size that the user chooses."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from forebay import Client, ForebayError
from forebay_torch.iter_dataset import IterableDataset
from forebay_torch.object_index import Answer
from forebay_torch.source import PrefixMap, Sources, check_kind, check_prefix_map

__all__ = ["BatchIterDataset"]


class BatchIterDataset(IterableDataset):
    """As IterableDataset, with ``max_batch_size`` objects in every request.

    Samples are ``(name, content)``, one by one. The objects of a request are asked of their owners
    at the same time, and each is handed out as soon as it and all before it have arrived. A request
    for at most 4 MiB is sent while the one before it is read, and has arrived as a whole then.

    Args:
        ais_source_list: As for BaseMapDataset.
        prefix_map: As for BaseMapDataset.
        client: A ``forebay.Client``; by default one from the environment. It may also come before
            ``prefix_map``, as in AIStore's class.
        show_progress: Show on a terminal's stderr how many objects were read.
        max_batch_size: Most objects in a request.
        output_format: Kept for compatibility: answers are a stream of checksummed frames.
        streaming: Hand out objects as they arrive; else when the whole answer is there.
        colocation: Kept for compatibility: every object is read at the target that owns it.
        partition_sources_by_worker: Kept for compatibility: workers never list.
        options: All others of IterableDataset, such as ``on_error``, ``shuffle`` and ``batch_size``.

    Raises:
        ValueError: ``max_batch_size`` is less than 1; or as IterableDataset.
        TypeError: As IterableDataset.
    """

    def __init__(
        self,
        ais_source_list: Sources | None = None,
        prefix_map: PrefixMap | Client | None = None,
        client: Client | PrefixMap | None = None,
        show_progress: bool = False,
        max_batch_size: int = 32,
        output_format: str = ".tar",
        streaming: bool = True,
        colocation: Any = None,
        partition_sources_by_worker: bool = False,
        **options: Any,
    ) -> None:
        owner = type(self).__name__
        prefixes, own = prefix_map, client
        if isinstance(prefixes, Client) or isinstance(own, Mapping):
            prefixes, own = own, prefixes
        check_prefix_map(owner, prefixes)
        check_kind(owner, "client", own, Client)
        assert not isinstance(prefixes, Client) and not isinstance(own, Mapping)
        check_kind(owner, "show_progress", show_progress, bool)
        check_kind(owner, "max_batch_size", max_batch_size, int)
        if max_batch_size < 1:
            raise ValueError(f"max_batch_size must be at least 1, not {max_batch_size}")
        super().__init__(
            ais_source_list,
            prefixes,
            partition_sources_by_worker,
            storage_client=own,
            show_progress=show_progress,
            **options,
        )
        self._most = max_batch_size
        self._streaming = streaming

    def _groups(self, rows: Sequence[int]) -> Iterator[Sequence[int]]:
        if self._config.batch_bytes == 0:
            return super()._groups(rows)
        return (rows[start : start + self._most] for start in range(0, len(rows), self._most))

    def _fetch(self, rows: Sequence[int]) -> Iterable[Answer]:
        if not self._streaming or len(rows) < 2:
            return super()._fetch(rows)
        return self._streamed(rows)

    def _streamed(self, rows: Sequence[int]) -> Iterator[Answer]:
        objects, size, waited = 0, 0, 0.0
        answers = self._index.stream(rows)
        try:
            while True:
                started = time.perf_counter()
                answer = next(answers, None)
                waited += time.perf_counter() - started
                if answer is None:
                    return
                if isinstance(answer, memoryview):
                    objects, size = objects + 1, size + len(answer)
                yield answer
        finally:
            self._counters.add(objects=objects, bytes=size, requests=1, fetch_s=waited)
