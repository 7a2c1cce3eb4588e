"""Many objects in one request per owning target."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from forebay import _core
from forebay.errors import ForebayError
from forebay.object import Object
from forebay.types import BatchResult

if TYPE_CHECKING:
    from forebay.bucket import Bucket
    from forebay.client import Client

__all__ = ["Batch"]

_NOTHING = memoryview(b"")


class Batch:
    """Objects to get together, of one bucket or of many; answers come in the order of adding.

    Example:
        >>> batch = client.batch(["a", "b"], bucket=bucket)   # doctest: +SKIP
        >>> for result, content in batch.get():               # doctest: +SKIP
        ...     print(result.obj_name, len(content))
    """

    def __init__(
        self,
        client: Client,
        bucket: Bucket | None = None,
        *,
        on_error: Literal["raise", "return"] = "raise",
    ) -> None:
        if on_error not in ("raise", "return"):
            raise ValueError(f'on_error is "raise" or "return", not {on_error!r}')
        self._client = client
        self._bucket = bucket
        self._on_error = on_error
        self._buckets: dict[str, int] = {}
        self._bucket_of: list[int] = []
        self._names: list[str] = []

    def add(self, item: Object | str) -> Batch:
        """This batch with one object more, given as itself or as a name in the batch's bucket."""
        if isinstance(item, Object):
            bucket, name = item.bucket, item.name
        elif self._bucket is not None:
            bucket, name = self._bucket, item
        else:
            raise ValueError(f"{item!r} is a name; say in which bucket: batch(..., bucket=...)")
        if bucket.client.endpoint != self._client.endpoint:
            raise ValueError(f"{item!r} is in the cluster at {bucket.client.endpoint}")
        self._bucket_of.append(self._buckets.setdefault(bucket.uri, len(self._buckets)))
        self._names.append(name)
        return self

    def get(self) -> Iterator[tuple[BatchResult, memoryview]]:
        """Each answer as soon as it and all before it have arrived.

        Raises:
            ForebayError: An object cannot be had and ``on_error`` is ``raise``.
        """
        if not self._names:
            return
        stream = self._client._native.batch(list(self._buckets), self._bucket_of, self._names)
        uris = list(self._buckets)
        for index, answer in enumerate(stream):
            yield self._result(uris, index, answer)

    def get_all(self) -> list[tuple[BatchResult, memoryview]]:
        """All answers at once: a single call that leaves Python alone until the last is there."""
        if not self._names:
            return []
        uris = list(self._buckets)
        answers = self._client._native.batch_all(uris, self._bucket_of, self._names)
        return [self._result(uris, index, answer) for index, answer in enumerate(answers)]

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} objects>"

    def _result(
        self, uris: list[str], index: int, answer: _core.Buffer | ForebayError
    ) -> tuple[BatchResult, memoryview]:
        uri, name = uris[self._bucket_of[index]], self._names[index]
        if isinstance(answer, ForebayError):
            if self._on_error == "raise":
                raise answer
            return BatchResult(index, uri, name, 0, answer), _NOTHING
        return BatchResult(index, uri, name, len(answer)), memoryview(answer)
