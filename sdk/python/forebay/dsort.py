"""Specifications of jobs that sort shards."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from forebay.bucket import Bucket

if TYPE_CHECKING:
    from forebay.client import Client

__all__ = ["DsortOptions", "dsort_spec"]

Reaction = Literal["ignore", "warn", "abort"]
KeyMap = Mapping[str, Sequence[str] | str]


class DsortOptions(TypedDict, total=False):
    """Options of :meth:`Client.dsort <forebay.Client.dsort>`; all may be left out.

    Attributes:
        names: The input shards one by one, instead of all that ``source`` stands for.
        input_ext: Extension of the input shards; by default any archive is one.
        output_ext: Extension, and so format, of the output shards; by default that of the input.
        shard_size: Bytes of members after which a shard is full, as a number or with a unit;
            128 MiB by default.
        algorithm: Order of the records: by name, as they come, by the MD5 of the name, at random,
            or by the content of the member with the extension ``key_ext``.
        decreasing: Turn the order around.
        seed: Of a shuffle; the same seed is the same output on any cluster. At random by default.
        key_ext: Extension of the members that are keys, with its dot.
        key_type: Their type.
        ekm: External key map, ``{template: keys}``, or the path or URL of one.
        ekm_sep: Between key and template on a line of the map; a tab by default.
        ekm_malformed_line: About lines of the map that are no key and template; abort by default.
        ekm_missing_key: About records that the map does not know; abort by default.
        duplicated_records: About two members of one name in one shard; abort by default.
        missing_shards: About names of the input that no object has; ignore by default.
        max_mem_usage: Most memory for what is known of the records: ``"80%"`` or bytes.
        extract_limit: Input shards looked into at once.
        create_limit: Output shards that one target writes at once.
        timeout: Seconds that a shard is tried again without progress.
        overwrite: Whether objects may be replaced that exist under the names of output shards.
        dry_run: Plan and count, and write nothing.
        description: The purpose of the job.
    """

    names: Sequence[str]
    input_ext: str
    output_ext: str
    shard_size: int | str
    algorithm: Literal["alphanumeric", "none", "md5", "shuffle", "content"]
    decreasing: bool
    seed: int
    key_ext: str
    key_type: Literal["int", "float", "string"]
    ekm: KeyMap | str | os.PathLike[str]
    ekm_sep: str
    ekm_malformed_line: Reaction
    ekm_missing_key: Reaction
    duplicated_records: Reaction
    missing_shards: Reaction
    max_mem_usage: str
    extract_limit: int
    create_limit: int
    timeout: float
    overwrite: bool
    dry_run: bool
    description: str


_PLAIN = {
    "input_ext": "input_extension",
    "output_ext": "output_extension",
    "ekm_sep": "ekm_file_sep",
    "extract_limit": "extract_concurrency_max_limit",
    "create_limit": "create_concurrency_max_limit",
} | {
    name: name
    for name in (
        "ekm_malformed_line",
        "ekm_missing_key",
        "duplicated_records",
        "missing_shards",
        "max_mem_usage",
        "dry_run",
        "description",
    )
}
_KNOWN = frozenset(DsortOptions.__annotations__)


def dsort_spec(
    client: Client,
    source: Bucket | str,
    destination: Bucket | str,
    template: str,
    options: DsortOptions,
) -> dict[str, Any]:
    """The spec of a job, as ``POST /v1/sort`` takes it.

    Raises:
        TypeError: An option is not known.
        ValueError: The destination is more than a bucket.
        OSError: The file of a key map cannot be read.
    """
    if unknown := sorted(set(options) - _KNOWN):
        raise TypeError(f"dsort has no option {unknown[0]!r}; it has {', '.join(sorted(_KNOWN))}")
    bucket, text = (source, "") if isinstance(source, Bucket) else client.bucket_of(source)
    to, rest = (destination, "") if isinstance(destination, Bucket) else client.bucket_of(destination)
    if rest:
        raise ValueError(f"destination: {destination!r} is more than a bucket; use the template")
    names = options.get("names")
    spec: dict[str, Any] = {
        "input_bck": {"name": bucket.name, "provider": bucket.provider},
        "input_format": {"template": text} if names is None else {"objnames": list(names)},
        "output_bck": {"name": to.name, "provider": to.provider},
        "output_format": template,
        "output_shard_size": str(options.get("shard_size", "128MiB")),
        "overwrite": "always" if options.get("overwrite", False) else "never",
        "algorithm": {
            "kind": options.get("algorithm", "alphanumeric"),
            "decreasing": options.get("decreasing", False),
        },
    }
    algorithm = spec["algorithm"]
    if "seed" in options:
        algorithm["seed"] = str(options["seed"])
    if "key_ext" in options:
        algorithm["extension"] = options["key_ext"]
    if "key_type" in options:
        algorithm["content_key_type"] = options["key_type"]
    if "timeout" in options:
        spec["timeout"] = f"{round(options['timeout'] * 1000)}ms"
    if (ekm := options.get("ekm")) is not None:
        spec["output_format"] = ""
        if isinstance(ekm, Mapping):
            spec["ekm"] = json.dumps({t: k if isinstance(k, str) else list(k) for t, k in ekm.items()})
        elif isinstance(ekm, str) and ekm.startswith(("http://", "https://")):
            spec["ekm_file"] = ekm
        else:
            spec["ekm"] = Path(ekm).read_text(encoding="utf-8")
    values: Mapping[str, Any] = options
    spec.update({key: values[name] for name, key in _PLAIN.items() if name in values})
    return spec
