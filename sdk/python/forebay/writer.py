"""A file whose content becomes an object."""

from __future__ import annotations

import contextlib
import io
from typing import TYPE_CHECKING, Any, BinaryIO

from forebay import _core
from forebay.spans import NO_SPAN, call_span

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from forebay.object import Object

__all__ = ["PART_BYTES", "Writer"]

# Default bytes of a part.
PART_BYTES = 16 << 20


class Writer(io.BufferedIOBase, BinaryIO):  # BinaryIO is what torch.save declares to take
    """A file that becomes one object, as a whole, when it is closed.

    Written bytes are sent in parts while more is being written, so a large object takes the
    memory of a few parts. Nothing is to be seen of it before ``close()``; leaving a ``with`` block
    by an exception stores nothing, and neither does a writer that is forgotten.
    """

    def __init__(
        self, target: Object, num_workers: int = 4, *, part_size: int = PART_BYTES
    ) -> None:
        """A writer of ``target``.

        Args:
            num_workers: Most parts on their way at once; ``close`` and ``write`` wait for them.
            part_size: Bytes of a part. Of these there are ``num_workers + 1`` in memory at most.
        """
        super().__init__()
        if num_workers < 1:
            raise ValueError(f"num_workers must be at least 1, not {num_workers}")
        if part_size < 1:
            raise ValueError(f"part_size must be at least 1, not {part_size}")
        self._target = target
        self._num_workers = num_workers
        self._part_size = part_size
        self._part = _core.PartBuffer(part_size)
        self._position = 0
        self._upload: _core.Upload | None = None
        self._failure: BaseException | None = None
        # Of the upload, from its first request on.
        self._span = NO_SPAN

    def write(self, data: Buffer, /) -> int:
        """Takes all of ``data``.

        Raises:
            ForebayError: A part could not be stored. The object will not be, either: the writer
                is closed, and each further ``write`` says the same.
        """
        if self._failure is not None:
            raise self._failure
        if self.closed:
            raise ValueError("write to a closed file")
        view = memoryview(data).cast("B")
        taken = 0
        while taken < len(view):
            if len(self._part) == self._part_size:
                self._send()
            taken += self._part.fill(view, taken)
        self._position += taken
        return taken

    def _send(self) -> None:
        native, uri = self._target.bucket.client._native, self._target.bucket.uri
        try:
            if self._upload is None:
                self._span = call_span("forebay.put", uri, self._target.name)
                with self._span.requests():
                    self._upload = native.upload(uri, self._target.name, self._num_workers)
            with self._span.requests():
                self._upload.push(self._part)
        except BaseException as error:
            self._failure = error
            self.abort()
            raise

    def tell(self) -> int:
        return self._position

    def writable(self) -> bool:
        return True

    def abort(self) -> None:
        """Closes the file without storing anything; the object stays as it was."""
        upload, self._upload = self._upload, None
        self._part.clear()
        super().close()
        if upload is not None:
            with self._span.requests():
                upload.abort()
            self._span.end()

    def close(self) -> None:
        """Stores the object.

        Raises:
            ForebayError: It could not be stored, and is as it was.
        """
        if self.closed:
            return
        if self._upload is not None:
            if len(self._part) > 0:
                self._send()
            upload, self._upload = self._upload, None
            super().close()
            with self._span as span:
                span.count(bytes=self._position)
                upload.finish()
            return
        super().close()
        native, uri = self._target.bucket.client._native, self._target.bucket.uri
        with call_span("forebay.put", uri, self._target.name) as span:
            span.count(bytes=self._position)
            native.put_gathered(uri, self._target.name, self._part)

    def __exit__(self, kind: Any, error: BaseException | None = None, *_: object) -> None:
        if kind is None:
            self.close()
            return
        # The caller gets the error of the block, even if the abort of the upload fails as well.
        with contextlib.suppress(Exception):
            self.abort()
        # A library that writes into this file may answer its failure by an error that says less.
        if self._failure is not None and _came_of(error, self._failure):
            raise self._failure from None

    def __del__(self) -> None:
        # Forgotten without close(): that is no decision to publish what was written so far. The
        # parts are not given up here, where waiting could hang; the target forgets them in time.
        self._upload = None
        if not self.closed:
            super().close()


def _came_of(error: BaseException | None, cause: BaseException) -> bool:
    """Whether ``error`` is another one that was raised while ``cause`` was handled."""
    seen: set[int] = set()
    before = error and (error.__cause__ or error.__context__)
    while before is not None and id(before) not in seen:
        if before is cause:
            return True
        seen.add(id(before))
        before = before.__cause__ or before.__context__
    return False
