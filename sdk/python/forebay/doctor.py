"""What this client may do with a bucket, and as whom.

    python -m forebay.doctor gs://bucket

A bucket of a cloud is read by the targets of the cluster, with the credentials that those have. Of the
server of this user and machine (:mod:`forebay.local`) they are those of this environment, and named
here; of any other cluster they are known there alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay.client import Client
from forebay.errors import ForebayError
from forebay.local import has_our_clouds

__all__ = ["BucketReport", "credentials_of", "examine"]


@dataclass(frozen=True)
class BucketReport:
    """What was found.

    Attributes:
        uri: The bucket, with the prefix that was looked at.
        endpoint: The cluster that was asked.
        credential: As whom the bucket is read.
        project: The project that Google counts reads for, where that is known.
        list_error: Why objects cannot be listed; None if they can.
        get_error: Why an object cannot be read; None if it can.
        example: The object that was read; empty if there is none.
    """

    uri: str
    endpoint: str
    credential: str
    project: str | None
    list_error: ForebayError | None
    get_error: ForebayError | None
    example: str

    @property
    def is_good(self) -> bool:
        """Whether objects can be listed and read."""
        return self.list_error is None and self.get_error is None

    def lines(self) -> list[str]:
        """The report as texts, one for each thing looked at."""

        def line(what: str, error: ForebayError | None, good: str) -> str:
            return f"FAIL {what}  {error}" if error is not None else f"ok   {what}  {good}"

        lines = [f"     cluster     {self.endpoint}", f"     credential  {self.credential}"]
        if self.project is not None:
            lines.append(f"     project     {self.project}")
        lines.append(line("list      ", self.list_error, self.uri))
        if self.list_error is None:
            read = f"a byte of {self.example!r}" if self.example else "no object there to try it on"
            lines.append(line("get       ", self.get_error, read))
        return lines


def examine(uri: str, client: Client | None = None) -> BucketReport:
    """Lists a bucket and reads a byte of its first object.

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
    is_own = has_our_clouds(own.endpoint)
    credential, project = credentials_of(bucket.provider) if is_own else (None, None)
    if bucket.provider == "ais":
        credential = "none: the bucket is the cluster's own, or reads where it was made to read"
    elif credential is None:
        credential = f"that of the targets of the cluster at {own.endpoint}; see their environment"
    list_error: ForebayError | None = None
    get_error: ForebayError | None = None
    example = ""
    try:
        found = (entry for entry in bucket.list_objects(prefix, page_size=2) if not entry.is_folder)
        first = next((entry for entry in found if not entry.name.endswith("/")), None)
        example = "" if first is None else first.name
    except ForebayError as error:
        list_error = error
    if example and first is not None:
        try:
            byte_range = (0, 1) if first.size else None
            bucket.object(example).get_reader(byte_range=byte_range).read_all()
        except ForebayError as error:
            get_error = error
    where = f"{bucket.uri}/{prefix}" if prefix else bucket.uri
    return BucketReport(
        where, own.endpoint, credential, project, list_error, get_error, example
    )


def credentials_of(
    provider: str, environment: Mapping[str, str] = os.environ
) -> tuple[str | None, str | None]:
    """Which credential a server with this environment reads a cloud with, and for which project.

    No secret is in it: names of variables and files, the name of an account or of a key.
    """
    if provider == "gcp":
        return _of_google(environment)
    if provider == "aws":
        return _of_aws(environment), None
    if provider == "azure":
        account = environment.get("AZURE_STORAGE_ACCOUNT") or environment.get(
            "AZURE_STORAGE_ACCOUNT_NAME"
        )
        set_ = [name for name in sorted(environment) if name.startswith("AZURE_")]
        of = f"of the account {account}" if account else "without an account"
        return f"{of}; set are {', '.join(set_) or 'no variables AZURE_…'}", None
    return None, None


def _of_google(environment: Mapping[str, str]) -> tuple[str, str | None]:
    project = environment.get("GOOGLE_CLOUD_QUOTA_PROJECT") or None
    if emulator := environment.get("STORAGE_EMULATOR_HOST", "").strip():
        return f"none: STORAGE_EMULATOR_HOST={emulator}", None
    given = environment.get("GOOGLE_APPLICATION_CREDENTIALS")
    default = ".config/gcloud/application_default_credentials.json"
    path = Path(given) if given else Path(environment.get("HOME", "/")) / default
    try:
        known: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        if given:
            return f"GOOGLE_APPLICATION_CREDENTIALS={path} cannot be read: {error}", project
        return "that of the machine (metadata server): there is no file of credentials", project
    if not isinstance(known, dict):
        return f"{path} is no file of credentials", project
    who = known.get("client_email") or known.get("account") or known.get("type")
    found = project or known.get("quota_project_id") or known.get("project_id")
    return f"{who}, from {path}", found if isinstance(found, str) else None


def _of_aws(environment: Mapping[str, str]) -> str:
    if key := environment.get("AWS_ACCESS_KEY_ID"):
        return f"the key {key} of AWS_ACCESS_KEY_ID"
    if role := environment.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
        return f"the role {environment.get('AWS_ROLE_ARN', '?')}, by the token in {role}"
    profile = environment.get("AWS_PROFILE", "default")
    file = Path(
        environment.get("AWS_SHARED_CREDENTIALS_FILE")
        or Path(environment.get("HOME", "/")) / ".aws/credentials"
    )
    if file.is_file():
        return f"the profile {profile!r} of {file}"
    return "that of the machine or container: neither a key nor a file of credentials is set"


def _main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1 or "://" not in arguments[0]:
        print("usage: python -m forebay.doctor gs://bucket[/prefix]", file=sys.stderr)
        return 2
    report = examine(arguments[0])
    print("\n".join(report.lines()))
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
