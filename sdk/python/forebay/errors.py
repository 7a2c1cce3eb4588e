"""Exceptions: one class per kind of failure that a caller would handle differently.

Each can be made from one string, because that is how a DataLoader carries an exception of a worker
to the training process.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "ForebayError",
    "NotFound",
    "AlreadyExists",
    "AccessDenied",
    "InvalidArgument",
    "ObjectChanged",
    "ChecksumMismatch",
    "CorruptAnswer",
    "TooManyRequests",
    "Timeout",
    "ClusterUnavailable",
]


class ForebayError(Exception):
    """Any failure that the cluster or the client reports.

    Attributes:
        message: What happened, and where known what to do about it.
        code: Kind of failure from a closed set, for example ``object_not_found``.
        status: The HTTP status of that kind.
        request_id: Id of the failed request, which is also in the log of each node that it passed;
            ``None`` if no node answered.
    """

    _code: ClassVar[str] = "internal"
    _status: ClassVar[int] = 500

    def __init__(
        self,
        message: str = "",
        *,
        code: str = "",
        status: int = 0,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self._code
        self.status = status or self._status
        self.request_id = request_id

    def __str__(self) -> str:
        return f"{self.message} (request {self.request_id})" if self.request_id else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.message, self.code, self.status, self.request_id)


class NotFound(ForebayError, FileNotFoundError):
    """The bucket, object, job or node does not exist."""

    _code, _status = "object_not_found", 404


class AlreadyExists(ForebayError, FileExistsError):
    """It is there already, or in a state that forbids the request."""

    _code, _status = "conflict", 409


class AccessDenied(ForebayError, PermissionError):
    """The credentials are missing, wrong, or do not allow this."""

    _code, _status = "access_denied", 403


class InvalidArgument(ForebayError, ValueError):
    """The request can never succeed as it stands: a bad name, range or value."""

    _code, _status = "invalid_argument", 400


class ObjectChanged(ForebayError):
    """The object is no longer the one that was listed or asked for."""

    _code, _status = "object_changed", 412


class ChecksumMismatch(ForebayError):
    """Bytes arrived that do not match their checksum."""

    _code, _status = "checksum_mismatch", 400


class CorruptAnswer(ForebayError):
    """A node's answer made no sense, also when it was asked again: no sample is to blame."""

    _code, _status = "corrupt_answer", 502


class TooManyRequests(ForebayError):
    """The cluster or the cloud asked to slow down, for longer than the deadline."""

    _code, _status = "too_many_requests", 429


class Timeout(ForebayError, TimeoutError):
    """No answer within the client's deadline."""

    _code, _status = "timeout", 504


class ClusterUnavailable(ForebayError, ConnectionError):
    """The cluster, or the node that owns the object, cannot be reached now."""

    _code, _status = "unavailable", 503


_BY_CODE: dict[str, type[ForebayError]] = {
    "bucket_not_found": NotFound,
    "remote_bucket_not_found": NotFound,
    "object_not_found": NotFound,
    "member_not_found": NotFound,
    "job_not_found": NotFound,
    "node_not_found": NotFound,
    "account_not_found": NotFound,
    "upload_not_found": NotFound,
    "gone": NotFound,
    "bucket_exists": AlreadyExists,
    "bucket_not_empty": AlreadyExists,
    "conflict": AlreadyExists,
    "invalid_argument": InvalidArgument,
    "invalid_name": InvalidArgument,
    "invalid_part": InvalidArgument,
    "too_few_targets": InvalidArgument,
    "range_not_satisfiable": InvalidArgument,
    "checksum_mismatch": ChecksumMismatch,
    "object_changed": ObjectChanged,
    "corrupt_answer": CorruptAnswer,
    "unauthenticated": AccessDenied,
    "access_denied": AccessDenied,
    "too_many_requests": TooManyRequests,
    "timeout": Timeout,
    "unavailable": ClusterUnavailable,
    "wrong_owner": ClusterUnavailable,
}


_NO_BUCKET = frozenset({"bucket_not_found", "remote_bucket_not_found"})
# Endpoints of the clients of this process -> whether it is a server of the user's own.
_endpoints: dict[str, bool] = {}


def note_endpoint(endpoint: str, is_own: bool) -> None:
    """Remembers which clusters this process asks: an error of a server that the user did not name
    says which one it is of."""
    _endpoints[endpoint] = is_own or _endpoints.get(endpoint, False)


def from_code(
    code: str, status: int, message: str, request_id: str | None = None
) -> ForebayError:
    """The exception for a failure of this kind; called by the native core."""
    if code in _NO_BUCKET and _endpoints and all(_endpoints.values()):
        message += (
            f" (in the cluster at {list(_endpoints)[-1]}, a server of your own, because no endpoint "
            "is set: FOREBAY_ENDPOINT names another)"
        )
    kind = _BY_CODE.get(code, ForebayError)
    return kind(message, code=code, status=status, request_id=request_id)


def _restore(
    cls: type[ForebayError],
    message: str,
    code: str,
    status: int,
    request_id: str | None = None,
) -> ForebayError:
    return cls(message, code=code, status=status, request_id=request_id)
