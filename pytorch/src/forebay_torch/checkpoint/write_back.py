"""Checkpoints written back from a native bucket to one of a cloud, by jobs of the cluster."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from forebay import Bucket, ForebayError, Job, NotFound, Timeout, Writer
from forebay_torch.checkpoint.catalog import METADATA

__all__ = ["WriteBack", "WrittenBackWriter", "in_order"]


@dataclass(frozen=True, slots=True)
class _Sent:
    """A job that was started, and what it is about."""

    job: Job
    bucket: Bucket
    names: tuple[str, ...]
    removes: bool = False

    def pending(self) -> list[str]:
        """Returns the names whose job still matters.

        A name that was removed since need not be written to the cloud, and a name that was saved
        since need not be removed there.
        """
        return [name for name in self.names if _exists(self.bucket, name) != self.removes]


class WriteBack:
    """The jobs that write back to one place: those that ended and those that run.

    The error of a job is reported by a warning at the next one, which retries it, and by ``wait``.
    """

    def __init__(self, to: str) -> None:
        self.to = to
        self._lock = threading.Lock()
        self._sent: list[_Sent] = []

    def send(self, bucket: Bucket, names: Sequence[str]) -> Job | None:
        """Starts the job for these names, and for those that others failed of; None for a bucket of a
        cloud, which has what is written to it."""
        if bucket.provider != "ais":
            return None
        wanted = list(names)
        for failed, why in self._failed(bucket):
            warnings.warn(
                f"not all was written back to {self.to}, and is tried again: {why}",
                RuntimeWarning,
                stacklevel=4,
            )
            if failed.removes:
                self._start(failed.bucket, failed.pending(), removes=True)
            else:
                wanted += failed.pending()
        return self._start(bucket, dict.fromkeys(wanted))

    def remove(self, bucket: Bucket, names: Iterable[str]) -> None:
        """Starts the job that removes names at the cloud that were removed from the bucket."""
        wanted = list(names)
        if bucket.provider == "ais" and wanted:
            self._start(bucket, wanted, removes=True)

    def _start(self, bucket: Bucket, names: Iterable[str], removes: bool = False) -> Job:
        wanted = tuple(names)
        job = bucket.write_back(self.to, wanted, remove=removes)
        with self._lock:
            self._sent.append(_Sent(job, bucket, wanted, removes))
        return job

    def wait(self, timeout: float | None = None) -> None:
        """Returns when all is in the cloud.

        Raises:
            Timeout: It is not after so many seconds.
            ForebayError: A job failed, or was stopped; the next one tries it again.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        for sent in self._taken():
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                if sent.job.wait(left).state == "done":
                    continue
                raise ForebayError(f"job {sent.job.id} was stopped; not all is in {self.to}")
            except ForebayError as error:
                if isinstance(error, Timeout) or sent.pending():
                    with self._lock:
                        self._sent.append(sent)
                    raise

    def _taken(self) -> Iterable[_Sent]:
        """All that was sent, each taken out as it is given."""
        while True:
            with self._lock:
                if not self._sent:
                    return
                sent = self._sent.pop(0)
            yield sent

    def _failed(self, bucket: Bucket) -> list[tuple[_Sent, str]]:
        """The jobs of a bucket that failed, with the reason; jobs that are over are forgotten."""
        with self._lock:
            sent, self._sent = self._sent, []
        left, failed = [], []
        for one in sent:
            try:
                status = one.job.status()
            except NotFound:  # It ended so long ago that it was forgotten.
                continue
            except ForebayError:
                left.append(one)
                continue
            if not status.is_over or (status.state != "done" and one.bucket != bucket):
                left.append(one)
            elif status.state != "done" and one.pending():
                why = status.messages[0] if status.messages else f"job {status.id} was stopped"
                failed.append((one, why))
        with self._lock:
            self._sent = left + self._sent
        return failed

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process has jobs of its own.
        return WriteBack, (self.to,)


class WrittenBackWriter(Writer):
    """A writer whose object is written back as soon as it is stored."""

    def __init__(self, write_back: WriteBack, target: Any, num_workers: int, part_size: int) -> None:
        super().__init__(target, num_workers, part_size=part_size)
        self._write_back = write_back
        self._written = target

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        self._write_back.send(self._written.bucket, [self._written.name])


def in_order(names: Iterable[str]) -> list[list[str]]:
    """Steps in which the objects of a folder go out: what says that it is whole comes last."""
    parts: list[str] = []
    last: list[str] = []
    for name in names:
        (last if name.rpartition("/")[2] == METADATA else parts).append(name)
    return [step for step in (parts, last) if step]


def _exists(bucket: Bucket, name: str) -> bool:
    try:
        bucket.object(name).head()
    except NotFound:
        return False
    return True
