"""The arguments by which users name the sources of a dataset."""

from __future__ import annotations

from collections.abc import Sequence

from forebay import Client
from forebay_torch.config import Config
from forebay_torch.project import check_project
from forebay_torch.source import PrefixMap, Sources, check_prefix_map

__all__ = ["sources_of"]


def sources_of(
    owner: str,
    given: Sequence[Sources | None],
    prefix_map: PrefixMap | None,
    bucket_name: str | None,
    config: Config | None,
    client: Client | None,
    project_name: str | None = None,
) -> tuple[Sources | None, PrefixMap | None]:
    """Sources and prefixes, from whichever of the ways to name them was used."""
    check_prefix_map(owner, prefix_map)
    named = [source for source in given if source is not None]
    if len(named) + (bucket_name is not None) > 1:
        raise TypeError(f"{owner} takes one of sources, ais_source_list and bucket_name")
    prefix = config.prefix if config is not None else None
    if bucket_name is None:
        if prefix is not None:
            raise TypeError(f"{owner}: config.prefix goes with bucket_name; else use prefix_map")
        return (named[0] if named else None), prefix_map
    if prefix_map is not None:
        raise TypeError(f"{owner}: prefix_map goes with sources; bucket_name with config.prefix")
    bucket, path = (client or Client()).bucket_of(bucket_name)
    check_project(owner, project_name, bucket)
    return bucket, {bucket: path + (prefix or "")}
