"""Whether the project that a user names is the one that Google counts the reads for.

The cluster reads Google Cloud Storage, with its own credentials, which it never reveals. Only of the
server of this user and machine (:mod:`forebay.local`) are they known here: they are this process's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forebay import Bucket, local

__all__ = ["check_project", "quota_project"]

# Kinds of credentials whose file may name a project; the others leave it to the environment.
_KINDS_WITH_PROJECT = ("authorized_user", "impersonated_service_account")


def check_project(owner: str, project_name: str | None, bucket: Bucket) -> None:
    """Does nothing unless the credentials are known to name another project for a bucket of Google.

    Raises:
        ValueError: They do; the message says where.
    """
    if not project_name or bucket.provider != "gcp":
        return
    project, where = quota_project()
    if project in (None, project_name) or not local.has_our_clouds(bucket.client.endpoint):
        return
    raise ValueError(
        f"{owner}: project_name={project_name!r}, but {where} names the project {project!r}, for "
        f"which {bucket.uri} is read; name the same here and there, and end the server that has the "
        "old setting with `python -m forebay.local stop`"
    )


def quota_project(environment: Mapping[str, str] = os.environ) -> tuple[str | None, str]:
    """The project that this environment's application default credentials are counted for, and
    what names it; None where nothing does, and for an emulator, which counts for nobody."""
    if environment.get("STORAGE_EMULATOR_HOST", "").strip():
        return None, "STORAGE_EMULATOR_HOST"
    if named := environment.get("GOOGLE_CLOUD_QUOTA_PROJECT"):
        return named, "GOOGLE_CLOUD_QUOTA_PROJECT"
    given = environment.get("GOOGLE_APPLICATION_CREDENTIALS")
    left_by_gcloud = ".config/gcloud/application_default_credentials.json"
    path = Path(given) if given else Path(environment.get("HOME", "/")) / left_by_gcloud
    try:
        credentials: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        # The cluster says so, and better.
        return None, str(path)
    if not isinstance(credentials, dict) or credentials.get("type") not in _KINDS_WITH_PROJECT:
        return None, str(path)
    project = credentials.get("quota_project_id")
    return (project if isinstance(project, str) and project else None), str(path)
