"""Many objects in one request per owning target."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from forebay import _core
from forebay.errors import ForebayError
from forebay.object import Object
from forebay.spans import call_span
from forebay.types import BatchResult

if TYPE_CHECKING:
    from forebay.bucket import Bucket
    from forebay.client import Client

__all__ = ["Batch"]

_NOTHING = memoryview(b"")
_WHOLE = ("", None, None)


class Batch:
    """Objects to get together, of one bucket or of many; answers come in the order of adding.

    An entry may also be a member of a shard, or a range of bytes of either.

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
        # As many as names, once one of them is not a whole object: member, offset, length.
        self._parts: list[tuple[str, int | None, int | None]] | None = None
        self._opaque: dict[int, bytes] = {}

    def add(
        self,
        item: Object | str,
        *,
        archpath: str | None = None,
        start: int | None = None,
        length: int | None = None,
        opaque: bytes | None = None,
    ) -> Batch:
        """This batch with one entry more.

        Args:
            item: The object, or its name in the batch's bucket.
            archpath: Take this member of the shard that the object is.
            start: First byte to take, of the object or of the member.
            length: How many bytes to take; by default all from ``start`` on. Fewer that are there
                are an error of the entry, not a shorter payload.
            opaque: Comes back as ``BatchResult.opaque``.
        """
        if isinstance(item, Object):
            bucket, name = item.bucket, item.name
        elif self._bucket is not None:
            bucket, name = self._bucket, item
        else:
            raise ValueError(f"{item!r} is a name; say in which bucket: batch(..., bucket=...)")
        if bucket.client.endpoint != self._client.endpoint:
            raise ValueError(f"{item!r} is in the cluster at {bucket.client.endpoint}")
        self._bucket_of.append(self._buckets.setdefault(bucket.uri, len(self._buckets)))
        if archpath is not None or start is not None or length is not None:
            if archpath == "":
                raise ValueError("archpath is the name of a member; it must not be empty")
            if (start is not None and start < 0) or (length is not None and length < 0):
                raise ValueError(f"start={start} and length={length} must not be negative")
            if self._parts is None:
                self._parts = [_WHOLE] * len(self._names)
            self._parts.append((archpath or "", start, length))
        elif self._parts is not None:
            self._parts.append(_WHOLE)
        if opaque is not None:
            self._opaque[len(self._names)] = opaque
        self._names.append(name)
        return self

    def get(self, *, ordered: bool = True) -> Iterator[tuple[BatchResult, memoryview]]:
        """Each answer as soon as it and all before it have arrived.

        Args:
            ordered: False gives each as soon as it has arrived itself, in any order;
                ``BatchResult.index`` says which entry it answers.

        Raises:
            ForebayError: An object cannot be had and ``on_error`` is ``raise``.
        """
        if not self._names:
            return
        uris = list(self._buckets)
        native = self._client._native
        span = call_span("forebay.batch", ", ".join(uris), objects=len(self._names))
        with span.requests():
            stream = native.batch(uris, self._bucket_of, self._names, self._parts, ordered)
        for run in span.follow(stream):
            for index, answer in run:
                yield self._result(uris, index, answer)

    def get_all(self) -> list[tuple[BatchResult, memoryview]]:
        """All answers at once: a single call that leaves Python alone until the last is there."""
        if not self._names:
            return []
        uris = list(self._buckets)
        native = self._client._native
        with call_span("forebay.batch", ", ".join(uris), objects=len(self._names)) as span:
            answers = native.batch_all(uris, self._bucket_of, self._names, self._parts)
            span.received(answers)
        return [self._result(uris, index, answer) for index, answer in enumerate(answers)]

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} objects>"

    def _result(
        self, uris: list[str], index: int, answer: _core.Buffer | ForebayError
    ) -> tuple[BatchResult, memoryview]:
        uri, name = uris[self._bucket_of[index]], self._names[index]
        archpath = (self._parts[index][0] or None) if self._parts else None
        opaque = self._opaque.get(index)
        if isinstance(answer, ForebayError):
            if self._on_error == "raise":
                raise answer
            return BatchResult(index, uri, name, 0, answer, archpath, opaque), _NOTHING
        result = BatchResult(index, uri, name, len(answer), None, archpath, opaque)
        return result, memoryview(answer)
