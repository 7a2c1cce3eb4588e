"""Requests by the description of the API: its document is validated, and schemathesis sends requests
that fit it, and some that do not, and compares the answers with it."""

from __future__ import annotations

import copy
import json
import subprocess
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forebay_cluster import REPOSITORY

Document = dict[str, Any]

# Streams of events last for minutes unless the request limits them.
STREAM_S = 0.05
REFERENCE = "#/components/schemas/"
SETTINGS = """
request-timeout = 15.0
[checks]
# 501: a right request that this version does not serve; 503, 504 and 507: the state of the cluster.
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 501, 503, 504, 507]
# Rules on names, patterns and clouds that a schema cannot have reject a part of the valid requests.
positive_data_acceptance.enabled = false
[[operations]]
# The limit of the time is the test's, not one of the description.
include-path-regex = "/live$"
checks.negative_data_rejection.enabled = false
"""


def fetch(endpoint: str) -> Document:
    """The description as a gateway serves it."""
    with urllib.request.urlopen(f"{endpoint}/api/openapi.json", timeout=30) as answer:
        found: Document = json.load(answer)
        return found


def programs() -> Path:
    """The folder with the programs of ci/schemathesis.sh."""
    done = subprocess.run(
        [REPOSITORY / "ci/schemathesis.sh"], stdout=subprocess.PIPE, text=True, check=True
    )
    return Path(done.stdout.strip())


def validate(document: Document, folder: Path) -> subprocess.CompletedProcess[str]:
    """Validates a document by the rules of OpenAPI 3.1."""
    file = folder / "openapi.json"
    file.write_text(json.dumps(document))
    command = [str(programs() / "python"), "-m", "openapi_spec_validator"]
    command += ["--schema", "3.1", str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def native_part(document: Document, served_by: str) -> Document:
    """The native API of the nodes of a role. Fields of answers that are not described are errors here,
    while clients ignore them."""
    part = copy.deepcopy(document)
    schemas: dict[str, Any] = part["components"]["schemas"]

    def strict(value: Any) -> Any:
        if isinstance(value, list):
            return [strict(one) for one in value]
        if not isinstance(value, dict):
            return value
        shown = {key: strict(one) for key, one in value.items()}
        if str(shown.get("$ref", "")).startswith(REFERENCE):
            shown["$ref"] = REFERENCE + strict_name(shown["$ref"].removeprefix(REFERENCE))
        if shown.get("type") == "object" and isinstance(shown.get("properties"), dict):
            shown.setdefault("additionalProperties", False)
        return shown

    def strict_name(name: str) -> str:
        # A description of the API has more fields than its schema names.
        if name == "OpenApi":
            return name
        if f"Strict{name}" not in schemas:
            schemas[f"Strict{name}"] = {}
            schemas[f"Strict{name}"] = strict(document["components"]["schemas"][name])
        return f"Strict{name}"

    paths = {}
    for path, item in part["paths"].items():
        kept = {verb: one for verb, one in item.items() if is_native(one, served_by)}
        for operation in kept.values():
            for answer in operation["responses"].values():
                for body in answer.get("content", {}).values():
                    body["schema"] = strict(body["schema"])
            for parameter in operation["parameters"]:
                if parameter.get("name") == "max_s":
                    parameter.update(required=True, example=STREAM_S)
                    parameter["schema"]["maximum"] = STREAM_S
        if kept:
            paths[split_name(path, kept)] = kept
    part["paths"] = paths
    return part


def split_name(path: str, item: dict[str, Any]) -> str:
    """The path with the bucket and the object as two parameters: schemathesis encodes a slash in one."""
    stem = path.removesuffix("/{name}")
    if stem not in ("/api/v1/content", "/api/v1/members", "/api/v1/shard"):
        return path
    for operation in item.values():
        joined = next(one for one in operation["parameters"] if one.get("name") == "name")
        bucket, _, name = joined["example"].partition("/")
        joined.update(schema={"type": "string", "minLength": 1, "maxLength": 1_024}, example=name)
        schema = {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"}
        operation["parameters"].append(
            {"name": "bucket", "in": "path", "required": True, "schema": schema, "example": bucket}
        )
    return f"{stem}/{{bucket}}/{{name}}"


def is_native(operation: dict[str, Any], served_by: str) -> bool:
    is_foreign = {"aistore", "s3"} & set(operation["tags"])
    return not is_foreign and served_by in operation["x-forebay-served-by"]


def send(
    document: Document, url: str, folder: Path, options: Sequence[str], timeout_s: float = 120
) -> subprocess.CompletedProcess[str]:
    """Sends requests by a document to a node, and compares the answers with it."""
    file, settings = folder / "part.json", folder / "schemathesis.toml"
    file.write_text(json.dumps(document))
    settings.write_text(SETTINGS)
    command = [str(programs() / "schemathesis"), "--config-file", str(settings)]
    command += ["run", str(file), "--url", url, "--no-color", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, cwd=folder)
