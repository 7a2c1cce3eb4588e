"""The file that an object is read through."""

from __future__ import annotations

import atexit
import functools
import sys
import time
import weakref
from typing import Any

from forebay.range_reader import RangeReader

__all__ = ["OpenedFile"]

_MOST_WAIT_S = 1.0
# What a thread needs to come back from a `close` that has just been counted.
_RETURN_S = 0.05

_open_files: weakref.WeakSet[OpenedFile] = weakref.WeakSet()


class OpenedFile(RangeReader):
    """A RangeReader that the end of the program waits for, where pyarrow may hold it.

    Threads of pyarrow let go of a file a moment after the call that read it has returned. One that
    comes to do so when the interpreter has begun to end is ended within a destructor of C++, which
    aborts the program after all its work: https://github.com/apache/arrow/issues/45214.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _wait_at_the_end()
        _open_files.add(self)

    def close(self) -> None:
        """Ends the reading; what is on its way is not waited for."""
        super().close()
        _open_files.discard(self)


def _wait_for_others() -> None:
    """Gives pyarrow's threads time to let go of files; one that somebody keeps costs all of it."""
    if "pyarrow" not in sys.modules:
        return
    deadline = time.monotonic() + _MOST_WAIT_S
    while _open_files and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(_RETURN_S)


@functools.cache
def _wait_at_the_end() -> None:
    atexit.register(_wait_for_others)
