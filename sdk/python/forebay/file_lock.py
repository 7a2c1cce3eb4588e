"""Locks on files that exclude other processes of this machine and other threads of this one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from forebay.errors import ClusterUnavailable

__all__ = ["exclusive"]

_RETRY_INTERVAL_S = 0.02
_one_thread = threading.Lock()


def _renew() -> None:
    global _one_thread
    _one_thread = threading.Lock()


# A child may be forked while another thread of its parent holds the lock.
os.register_at_fork(after_in_child=_renew)


@contextlib.contextmanager
def exclusive(path: Path, end: float) -> Iterator[None]:
    """Holds the lock of a file: no other process of this machine and no other thread has it meanwhile.

    Args:
        end: Until when to wait for the lock, by the monotonic clock.

    Raises:
        ClusterUnavailable: The lock was not free by then.
    """
    with _one_thread:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            while True:
                try:
                    # Not flock: a child that another thread forks now would hold it as well.
                    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except (BlockingIOError, PermissionError):
                    if time.monotonic() > end:
                        raise ClusterUnavailable(
                            f"another process has been starting the server in {path.parent} for "
                            "too long"
                        ) from None
                    time.sleep(_RETRY_INTERVAL_S)
            yield
        finally:
            os.close(descriptor)
