"""Checks which operations this client may do with a bucket, and with which credentials.

    python -m forebay.doctor gs://bucket

A bucket of a cloud is read by the targets of the cluster, with the credentials of their environment:
the targets try it and report their identity. The command ``forebay doctor gs://bucket`` does the same.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forebay.client import Client
from forebay.errors import ClusterUnavailable, ForebayError, NotFound, from_code

__all__ = ["BucketReport", "examine"]


@dataclass(frozen=True)
class BucketReport:
    """The result of ``examine``. If targets differ, the first one that cannot read the bucket counts.

    Attributes:
        uri: The bucket, with the prefix that was looked at.
        endpoint: The cluster that was asked.
        credential: The identity with which the targets read the bucket.
        project: The project that Google counts reads for, where that is known.
        account: The storage account of Azure.
        region: The region that requests to S3 are signed for.
        list_error: Why objects cannot be listed; None if they can, or if that is not known.
        get_error: Why an object cannot be read; None if it can, or if that is not known.
        put_error: Why objects cannot be written; None if they can, or if that is not known.
        example: The object that was read; empty if there is none.
        targets: The reply of each target, as ``GET /api/v1/access/BUCKET`` gives it.
        away: The targets that did not answer.
    """

    uri: str
    endpoint: str
    credential: str
    project: str | None
    account: str | None
    region: str | None
    list_error: ForebayError | None
    get_error: ForebayError | None
    put_error: ForebayError | None
    example: str
    targets: tuple[Mapping[str, Any], ...] = ()
    away: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        """Whether every target answered and can list and read objects."""
        return self.list_error is None and self.get_error is None and not self.away

    def lines(self) -> list[str]:
        """The report as texts, one for each thing looked at."""
        facts = {
            "cluster": self.endpoint,
            "credential": self.credential,
            "project": self.project,
            "account": self.account,
            "region": self.region,
        }
        lines = [f"     {what:<10}  {found}" for what, found in facts.items() if found is not None]
        errors = {"list": self.list_error, "get": self.get_error, "put": self.put_error}
        first = _deciding(self.targets)
        for what, error in errors.items():
            if error is not None:
                # A credential that may not write is good enough for a cache.
                lines.append(f"{'warn' if what == 'put' else 'FAIL'} {what:<10}  {error}")
            elif first is not None and first[what]["result"] == "ok":
                lines.append(f"ok   {what:<10}  {first[what]['found']}")
            elif first is not None:
                lines.append(f"     {what:<10}  not known: {first[what]['why']}")
        lines += [f"FAIL target      {target} does not answer" for target in self.away]
        return lines


def examine(uri: str, client: Client | None = None) -> BucketReport:
    """Makes the targets list a bucket and read a byte of its first object.

    Args:
        uri: ``gs://bucket``, ``s3://bucket/prefix`` or any other of the cluster.
        client: By default one from the environment.

    Raises:
        ValueError: There is no such kind of bucket.
        ClusterUnavailable: The cluster does not answer.

    Example:
        >>> examine("gs://bucket").is_good                      # doctest: +SKIP
        True
    """
    own = client or Client()
    bucket, prefix = own.bucket_of(uri)
    where = f"{bucket.uri}/{prefix}" if prefix else bucket.uri
    try:
        access = json.loads(own._native.bucket_access(bucket.uri, prefix))
    except NotFound as error:
        nobody = "none: there is no such bucket"
        return BucketReport(
            where, own.endpoint, nobody, None, None, None, error, None, None, example=""
        )
    targets = tuple(access["targets"])
    found = _deciding(targets)
    if found is None:
        raise ClusterUnavailable(f"no target of the cluster at {own.endpoint} answered for {uri}")
    identity = found["identity"]
    return BucketReport(
        where,
        own.endpoint,
        identity["credential"],
        identity.get("project"),
        identity.get("account"),
        identity.get("region"),
        _error(found["list"]),
        _error(found["get"]),
        _error(found["put"]),
        found["example"],
        targets,
        tuple(access["away"]),
    )


def _deciding(targets: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The first target that cannot read the bucket, or else the first one."""
    bad = (t for t in targets if "fail" in (t["list"]["result"], t["get"]["result"]))
    return next(bad, None) or next(iter(targets), None)


def _error(access: Mapping[str, Any]) -> ForebayError | None:
    if access["result"] != "fail":
        return None
    error = access["error"]
    hint = error.get("hint")
    return from_code(error["code"], 0, f"{error['message']} ({hint})" if hint else error["message"])


def _main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1 or "://" not in arguments[0]:
        print("usage: python -m forebay.doctor gs://bucket[/prefix]", file=sys.stderr)
        return 2
    report = examine(arguments[0])
    print("\n".join(report.lines()))
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
