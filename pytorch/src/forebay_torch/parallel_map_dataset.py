"""Large objects, each by several ranges at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forebay import ForebayError, ObjectChanged
from forebay_torch.map_dataset import MapDataset
from forebay_torch.source import PrefixMap, Sources, check_kind

__all__ = ["ParallelMapDataset"]

# A range is not made smaller than this.
_LEAST_BYTES = 1 << 20


class ParallelMapDataset(MapDataset):
    """As MapDataset for large objects: ``(name, content)``, the content as a ``bytearray``.

    An object of more than 1 MiB is read by up to ``num_workers`` ranges at a time, straight into
    the buffer that is handed out, which ``torch.frombuffer`` takes without a copy. Smaller ones are
    read together, by one request per owning target.

    Args:
        ais_source_list: As for BaseMapDataset.
        prefix_map: As for BaseMapDataset.
        num_workers: Most ranges of one object at a time; workers of a DataLoader come on top.
        options: All others of MapDataset but ``etl_name``, ``snapshot`` and ``zero_copy``.

    Raises:
        ValueError: ``num_workers`` is less than 1.
        ObjectChanged: An object was written anew while its ranges were read.

    Example:
        >>> dataset = ParallelMapDataset(bucket, num_workers=8)
        >>> name, content = dataset[0]
        >>> tensor = torch.frombuffer(content, dtype=torch.uint8)
    """

    def __init__(
        self,
        ais_source_list: Sources | None = None,
        prefix_map: PrefixMap | None = None,
        num_workers: int = 16,
        **options: Any,
    ) -> None:
        check_kind(type(self).__name__, "num_workers", num_workers, int)
        if num_workers < 1:
            raise ValueError(f"num_workers must be at least 1, not {num_workers}")
        for name in ("etl_name", "snapshot", "zero_copy"):
            if options.get(name):
                raise TypeError(f"{type(self).__name__} reads ranges of stored objects: no {name}")
        super().__init__(ais_source_list, prefix_map, **{**options, "zero_copy": True})
        self.num_workers = num_workers

    def _answers(self, rows: Sequence[int]) -> dict[int, Any]:
        """The contents of those that are not read by ranges."""
        sizes = self._index.listing.sizes
        small = [row for row in rows if sizes[row] <= _LEAST_BYTES]
        return super()._answers(small)

    def _samples(self, rows: Sequence[int]) -> list[Any]:
        answers = self._answers(rows)
        return [
            self._sample(row, answers[row] if row in answers else self._one(row)) for row in rows
        ]

    def _formatted(self, name: str, answer: Any) -> Any:
        if isinstance(answer, memoryview):
            # One that was put together from ranges is handed out itself.
            whole = answer.obj
            answer = whole if isinstance(whole, bytearray) else bytearray(answer)
        return super()._formatted(name, answer)

    def _one(self, row: int) -> Any:
        size = self._index.listing.sizes[row]
        if size <= _LEAST_BYTES:
            return super()._one(row)
        step = max(_LEAST_BYTES, -(-size // self.num_workers))
        item = self._index.object(row)
        batches = [(start, min(step, size - start)) for start in range(0, size, step)]
        content = bytearray(size)
        target = memoryview(content)
        try:
            before = item.head()
            batch = item.bucket.client.batch()
            for start, length in batches:
                batch.add(item, start=start, length=length)
            for (start, length), (_, part) in zip(batches, batch.get(), strict=True):
                target[start : start + length] = part
            after = item.head()
            known = (before.size, before.version, before.etag)
            if before.size != size or known != (after.size, after.version, after.etag):
                raise ObjectChanged(f"{item.uri} changed while it was read, or since it was listed")
        except ForebayError as error:
            return error
        self._counters.add(objects=1, bytes=size, requests=1)
        return target
