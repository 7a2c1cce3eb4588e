"""A job: long work on all targets, watched and stopped from here."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from forebay.errors import ForebayError, Timeout
from forebay.types import JobStatus

if TYPE_CHECKING:
    from forebay.client import Client

__all__ = ["Job"]

_FIRST_WAIT_S = 0.02
_MAX_WAIT_S = 0.5


class Job:
    """Handle of a job that was started.

    Example:
        >>> bucket.prefetch(prefix="train/").wait()   # doctest: +SKIP
    """

    __slots__ = ("_client", "id")

    def __init__(self, client: Client, id: str) -> None:
        self._client = client
        self.id = id

    def status(self) -> JobStatus:
        """How far it is now."""
        fields = json.loads(self._client._native.job(self.id))
        bucket = fields["bucket"]
        return JobStatus(
            id=fields["id"],
            kind=fields["kind"],
            bucket=self._client.bucket(bucket["name"], bucket["provider"]).uri if bucket else "",
            state=fields["state"],
            objects=fields["objects"],
            bytes=fields["bytes"],
            errors=fields["errors"],
            messages=tuple(fields.get("messages", ())),
            present=fields.get("present", 0),
            total_objects=fields.get("total_objects", 0),
            total_bytes=fields.get("total_bytes", 0),
        )

    def wait(self, timeout: float | None = None) -> JobStatus:
        """The final status, once the job is over.

        Args:
            timeout: Seconds to wait at most; None waits for as long as it takes.

        Raises:
            Timeout: The job goes on longer than ``timeout``.
            ForebayError: The job failed.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = _FIRST_WAIT_S
        while not (status := self.status()).is_over:
            if deadline is not None and time.monotonic() >= deadline:
                raise Timeout(f"job {self.id} is still running after {timeout} s")
            time.sleep(pause)
            pause = min(2 * pause, _MAX_WAIT_S)
        if status.state == "failed":
            raise ForebayError(f"job {self.id} failed: {'; '.join(status.messages)}")
        return status

    def stop(self) -> None:
        """Stops the job: all targets end it at their next step."""
        self._client._native.stop_job(self.id)

    def __repr__(self) -> str:
        return f"Job({self.id!r})"
