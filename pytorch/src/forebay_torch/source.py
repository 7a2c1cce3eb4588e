"""Sources of a dataset: resolves them, as users write them, into one list of objects."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

from forebay import (
    Bucket,
    Client,
    ClusterUnavailable,
    Listing,
    NotFound,
    ObjectGroup,
    Timeout,
    TooManyRequests,
    archive_format,
)
from forebay.single_reads import check_etl, list_pinned
from forebay_torch.config import Config
from forebay_torch.object_index import Answer, ObjectIndex, views

__all__ = [
    "Answer",
    "Source",
    "Sources",
    "PrefixMap",
    "ObjectIndex",
    "Part",
    "check_kind",
    "check_prefix_map",
    "check_reading",
    "parts_of",
    "shard_snapshot",
    "snapshot",
    "views",
]

Source: TypeAlias = Bucket | ObjectGroup | str
Sources: TypeAlias = Source | Sequence[Source]
PrefixMap: TypeAlias = Mapping[Any, str | Sequence[str] | None]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Part:
    """All names of a bucket, or of a group in it, that start with ``prefix``."""

    source: Bucket | ObjectGroup
    prefix: str = ""

    @property
    def bucket(self) -> Bucket:
        """The bucket of the objects."""
        return self.source if isinstance(self.source, Bucket) else self.source.bucket


def parts_of(
    owner: str,
    sources: Sources | None,
    prefix_map: PrefixMap | None = None,
    client: Client | None = None,
) -> tuple[Part, ...]:
    """The parts that make up a dataset.

    Args:
        owner: Name of the dataset's class, for messages.
        sources: The sources to read; a string is a URI such as ``s3://bucket/prefix`` or a template such
            as ``ais://bucket/shard-{000..099}.tar``.
        prefix_map: Source -> the prefixes to take of it; a source that is not in it, or is mapped
            to None, is read whole.
        client: For sources given as strings; by default one from the environment.
    """
    chosen: list[Source]
    check_prefix_map(owner, prefix_map)
    if isinstance(sources, Bucket | ObjectGroup | str):
        chosen = [sources]
    elif sources is None or (isinstance(sources, Iterable) and not isinstance(sources, Mapping)):
        chosen = list(sources or ())
    else:
        raise TypeError(
            f"{owner}: the first argument names the sources, a Bucket, an ObjectGroup, a URI or a "
            f"list of them, not {sources!r}; prefixes of a source are given as prefix_map"
        )
    if not chosen or "" in chosen:
        raise ValueError(f"{owner} needs at least one source: a Bucket, an ObjectGroup or a URI")
    prefixes_of = dict(prefix_map or {})
    for key in prefixes_of:
        if key not in chosen:
            raise ValueError(f"{owner}: prefix_map has {key!r}, which is not among the sources")
    parts = []
    for source in chosen:
        prefixes = prefixes_of.get(source)
        if prefixes is None:
            prefixes = [""]
        elif isinstance(prefixes, str):
            prefixes = [prefixes]
        if not all(isinstance(prefix, str) for prefix in prefixes):
            raise TypeError(f"{owner}: a prefix in prefix_map is a str, not one of {prefixes!r}")
        if isinstance(source, str):
            client = client or Client()
            bucket, path = client.bucket_of(source)
            if "{" in path:
                parts += [Part(bucket.objects(template=path), prefix) for prefix in prefixes]
            else:
                parts += [Part(bucket, path + prefix) for prefix in prefixes]
        elif isinstance(source, Bucket | ObjectGroup):
            parts += [Part(source, prefix) for prefix in prefixes]
        else:
            raise TypeError(
                f"{owner}: a source is a Bucket, an ObjectGroup or a URI, not {source!r}"
            )
    return tuple(parts)


def snapshot(
    parts: Sequence[Part],
    retries: int = 0,
    keep: Callable[[Part, str], bool] | None = None,
    *,
    owner: str = "a dataset",
    allow_empty: bool = False,
    kind: str = "object",
    config: Config | None = None,
    pinned: bool = False,
    etl_name: str | None = None,
) -> ObjectIndex:
    """One listing of all parts; an object that several of them name appears once.

    Directory markers of a bucket (empty objects whose names end in ``/``) are left out.

    Args:
        parts: The parts to list.
        retries: How often a listing is retried after a transient failure.
        keep: Which names of a part stay; by default all.
        owner: Name of the dataset's class, for messages.
        allow_empty: Whether a part may match nothing.
        kind: Name of the entries that ``keep`` selects, for messages.
        config: Its retries of listings and of reads.
        pinned: Whether only what is listed now is read later.
        etl_name: A transform of the cluster through which objects are read.

    Raises:
        ValueError: A part matches nothing, and ``allow_empty`` is not set.
    """
    if etl_name and parts:
        check_etl(parts[0].bucket.client, etl_name)
    kept = _without_covered(parts)
    shared = {p.bucket for p in kept if sum(q.bucket == p.bucket for q in kept) > 1}
    seen: dict[Bucket, set[str]] = {bucket: set() for bucket in shared}
    listed, pins = [], []
    for part in kept:
        source = _with_retry(part.source, config and config.list_retry_config)
        listing, pin = _retried(partial(_listed, source, part.prefix, pinned), retries)
        if isinstance(part.source, Bucket):
            listing, pin = _without_markers(listing, pin)
        if not allow_empty:
            covered = [p for p in parts if p.source == part.source and p.prefix != part.prefix]
            for one in [part, *covered]:
                _check_not_empty(owner, one, part, listing, keep, kind)
        if keep is not None or part.bucket in seen:
            before = seen.get(part.bucket, set())
            rows = _chosen(listing, part, keep, before, part.bucket in seen)
            pin = None if pin is None else Listing.from_pairs(pin[row] for row in rows)
            listing = Listing.from_pairs(listing[row] for row in rows)
        bucket = _with_retry(part.bucket, config and config.download_retry_config)
        listed.append((bucket, listing))
        pins.append(pin)
    if not listed:
        raise ValueError("prefix_map leaves nothing of any source; None stands for all of one")
    known_pins = [pin for pin in pins if pin is not None]
    return ObjectIndex(listed, Listing.concat(known_pins) if pinned else None, etl_name or "")


def check_prefix_map(owner: str, prefix_map: Any) -> None:
    """Refuses another argument in the place of ``prefix_map``.

    Raises:
        TypeError: It is no mapping.
    """
    if prefix_map is not None and not isinstance(prefix_map, Mapping):
        raise TypeError(
            f"{owner}: the second argument is prefix_map, source -> prefixes, such as "
            f'{{bucket: "train/"}}, not {prefix_map!r}; give other arguments by name'
        )


def check_kind(owner: str, name: str, value: Any, kind: type) -> None:
    """Refuses a positional argument that was meant for another place.

    Raises:
        TypeError: ``value`` is neither None nor of this type.
    """
    is_bool = isinstance(value, bool) and kind is not bool
    if value is not None and (is_bool or not isinstance(value, kind)):
        raise TypeError(
            f"{owner}: {name} is of type {kind.__name__}, not {value!r}; is an argument in "
            "another one's place? Give all but the sources and prefix_map by name"
        )


def check_reading(owner: str, etl_name: str | None, pinned: bool) -> None:
    """Refuses ways to read that do not go together, and what is no name of a transform."""
    check_kind(owner, "etl_name", etl_name, str)
    if etl_name and pinned:
        raise ValueError(
            f"{owner}: snapshot=True pins what is stored; what etl_name={etl_name!r} makes of it "
            "has no version, so take one of them"
        )


def shard_snapshot(
    owner: str, parts: Sequence[Part], retries: int = 0, **options: Any
) -> ObjectIndex:
    """As ``snapshot``, of the shards alone: of a bucket what is named like an archive, of a group
    all that it names."""

    def is_shard(part: Part, name: str) -> bool:
        return isinstance(part.source, ObjectGroup) or archive_format(name) is not None

    return snapshot(parts, retries, is_shard, owner=owner, kind="shard", **options)


def _check_not_empty(
    owner: str,
    part: Part,
    listed: Part,
    listing: Listing,
    keep: Callable[[Part, str], bool] | None,
    kind: str,
) -> None:
    """Refuses a part of which nothing is in this listing, which is that of ``listed`` and has
    all of ``part`` if its prefix is longer."""
    if not part.prefix.startswith(listed.prefix):
        return
    is_all = part.prefix == listed.prefix
    if keep is None and is_all and len(listing):
        return
    found = (name for name in listing.names() if is_all or name.startswith(part.prefix))
    first = next(found, None)
    if first is not None and (keep is None or keep(part, first)):
        return
    if keep is not None and any(keep(part, name) for name in found):
        return
    where = part.bucket.uri
    if isinstance(part.source, ObjectGroup):
        where = f"the group of {len(part.source.names)} names in {where}"
    names = f" whose name begins with {part.prefix!r}" if part.prefix else ""
    if first is not None:
        raise ValueError(
            f"{owner} found no {kind}s in {where}: no object there{names} is named like an archive "
            "(.tar, .tgz, .tar.gz, .tar.lz4, .tar.zst, .zip); allow_empty=True takes none"
        )
    raise ValueError(
        f"{owner} found no {kind}s in {where}: there is no object{names}; check bucket and prefix, "
        "or pass allow_empty=True for a dataset that may be empty"
    )


def _listed(
    source: Bucket | ObjectGroup, prefix: str, pinned: bool
) -> tuple[Listing, Listing | None]:
    """A source's names and sizes; and what pins them, where that is asked."""
    if not pinned:
        return source.list_snapshot(prefix), None
    if isinstance(source, Bucket):
        return list_pinned(source, prefix)
    wanted = [name for name in source.names if name.startswith(prefix)]
    shared = os.path.commonprefix([min(wanted), max(wanted)]) if wanted else prefix
    listing, pins = list_pinned(source.bucket, str(shared))
    rows = {name: row for row, name in enumerate(listing.names())}
    for name in wanted:
        if name not in rows:
            raise NotFound(f"{source.bucket.uri}/{name} does not exist")
    chosen = [rows[name] for name in wanted]
    return (
        Listing.from_pairs(listing[row] for row in chosen),
        Listing.from_pairs(pins[row] for row in chosen),
    )


def _without_markers(
    listing: Listing, pin: Listing | None
) -> tuple[Listing, Listing | None]:
    """The rows that are no directory markers: names that end in a slash, without content."""
    if 0 not in listing.sizes:
        return listing, pin
    sizes = listing.sizes
    rows = [r for r, name in enumerate(listing.names()) if sizes[r] or not name.endswith("/")]
    if len(rows) == len(listing):
        return listing, pin
    kept = Listing.from_pairs(listing[row] for row in rows)
    return kept, None if pin is None else Listing.from_pairs(pin[row] for row in rows)


def _with_retry(source: Any, retry: Any) -> Any:
    """The bucket or group, at a client for which clouds are tried again so."""
    if retry is None:
        return source
    if isinstance(source, ObjectGroup):
        return ObjectGroup(_with_retry(source.bucket, retry), source.names)
    return Bucket(source.client.with_retry(retry), source.name, source.provider)


def _without_covered(parts: Sequence[Part]) -> list[Part]:
    """The parts less those that another one of the same source contains as a whole."""
    unique = list(dict.fromkeys(parts))
    return [
        part
        for part in unique
        if not any(
            part.source == other.source and part != other and part.prefix.startswith(other.prefix)
            for other in unique
        )
    ]


def _chosen(
    listing: Listing,
    part: Part,
    keep: Callable[[Part, str], bool] | None,
    seen: set[str],
    is_shared: bool,
) -> list[int]:
    """The rows that stay, and that were not seen in another part of the same bucket."""
    rows = []
    for row, name in enumerate(listing.names()):
        if (keep is None or keep(part, name)) and name not in seen:
            rows.append(row)
            if is_shared:
                seen.add(name)
    return rows


def _retried(listing: Callable[[], T], retries: int) -> T:
    """The listing, retried so many times after transient failures."""
    while True:
        try:
            return listing()
        except (ClusterUnavailable, Timeout, TooManyRequests):
            if retries == 0:
                raise
            retries -= 1
