"""Buckets, and groups of objects in one bucket."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from forebay import _core
from forebay.errors import AlreadyExists, ForebayError, NotFound
from forebay.job import Job
from forebay.listing import Listing
from forebay.notices import ListingCost
from forebay.object import Object, as_bytes
from forebay.shard import ShardIndex
from forebay.spans import call_span
from forebay.types import BucketWarmth, ObjectEntry, ObjectRange, PrefetchPlan

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from forebay.client import Client

__all__ = ["Bucket", "ObjectGroup"]

# Name of a provider as clients write it -> (canonical name, scheme of a URI).
_PROVIDERS = {
    alias: (name, scheme)
    for name, scheme, aliases in (
        ("ais", "ais", ("ais", "fb", "forebay")),
        ("aws", "s3", ("aws", "s3")),
        ("gcp", "gs", ("gcp", "gs", "gcs")),
        ("azure", "az", ("azure", "az")),
        ("ht", "ht", ("ht",)),
    )
    for alias in aliases
}
_PUT_ROUND_BYTES = 32 << 20
_PUT_ROUND_OBJECTS = 1000


class Bucket:
    """A bucket of the cluster; equal to, and hashes as, every other handle of it."""

    __slots__ = ("client", "name", "provider", "_scheme")

    def __init__(self, client: Client, name: str, provider: str = "ais") -> None:
        if provider not in _PROVIDERS:
            known = ", ".join(_PROVIDERS)
            raise ValueError(f"unknown provider {provider!r}; one of {known}")
        self.client = client
        self.name = name
        self.provider, self._scheme = _PROVIDERS[provider]

    @property
    def uri(self) -> str:
        """``scheme://name``, as the command line takes it."""
        return f"{self._scheme}://{self.name}"

    def create(
        self,
        exist_ok: bool = False,
        *,
        folder: str | os.PathLike[str] | None = None,
        account: str | None = None,
    ) -> Bucket:
        """This bucket, now there.

        Args:
            exist_ok: Do not mind when it exists already.
            folder: Make it a window on this folder of the targets' machine, which must lie under
                a root that they allow.
            account: Call the bucket's cloud with this account of the targets' configuration
                (``[[cloud]]``) instead of that of their environment.

        Raises:
            AlreadyExists: It exists and ``exist_ok`` is false.
            InvalidArgument: No target has this account, or the bucket is not in a cloud.
        """
        try:
            root = None if folder is None else os.fspath(folder)
            self.client._native.create_bucket(self.uri, root, account)
        except AlreadyExists:
            if not exist_ok:
                raise
        return self

    def delete(self, missing_ok: bool = False) -> None:
        """Destroys the bucket with all objects in it. A cloud bucket is only forgotten here."""
        try:
            self.client._native.destroy_bucket(self.uri)
        except NotFound:
            if not missing_ok:
                raise

    def head(self) -> dict[str, Any]:
        """The bucket's properties.

        Raises:
            NotFound: There is no such bucket.
        """
        props: dict[str, Any] = json.loads(self.client._native.head_bucket(self.uri))
        return props

    def info(self) -> dict[str, Any]:
        """As :meth:`head`, with what the bucket's cloud bills under ``bill``.

        That is ``requests`` by class, ``fetched_bytes`` and ``sent_bytes``, ``listing_pages`` with
        their ``listing_bytes``, and ``saved_bytes``: what was served without coming from the cloud
        once more. ``targets`` counted it, each since its start; ``away`` are not in it.
        """
        return self.head() | {"bill": json.loads(self.client._native.bucket_bill(self.uri))}

    def warmth(self) -> BucketWarmth:
        """How much of the bucket is cached, and what its readers got from the cache.

        Nothing is listed: the targets count copies and reads as these change. Sizes are in bytes,
        times in seconds since 1970.

        Raises:
            NotFound: There is no such bucket.
            AccessDenied: The user may not see the bucket.
        """
        return BucketWarmth.from_reply(json.loads(self.client._native.bucket_warmth(self.uri)))

    def list_objects(
        self, prefix: str = "", *, page_size: int = 0, recursive: bool = True
    ) -> Iterator[ObjectEntry]:
        """The objects whose names start with ``prefix``, in name order, page by page.

        Args:
            page_size: Most objects that one request asks for; 0 is as many as the cluster gives.
            recursive: False lists one level alone: what has a further ``/`` behind the prefix's
                last one is listed once, as a folder.
        """
        token = ""
        list_page = self.client._native.list_page
        while True:
            with call_span("forebay.list", self.uri) as span:
                rows, token = list_page(self.uri, prefix, token, page_size, recursive)
                span.count(objects=len(rows))
            for row in rows:
                yield ObjectEntry(*row)
            if not token:
                return

    def list_snapshot(self, prefix: str = "") -> Listing:
        """All names and sizes under ``prefix`` at once, in a compact form.

        The first listing of a bucket that comes from a cloud prints what it cost there, unless
        notices are off.
        """
        cost = ListingCost.begin(self)
        with call_span("forebay.list", self.uri) as span:
            listing = Listing.from_buffers(*self.client._native.list_all(self.uri, prefix))
            span.count(objects=len(listing))
        if cost is not None:
            cost.print(prefix, len(listing))
        return listing

    def shard_index(self, name: str) -> ShardIndex:
        """The members of a shard with their places and sizes; nothing of it is downloaded.

        Raises:
            NotFound: It is not there.
            InvalidArgument: It is no archive, or a damaged one.
        """
        (index,) = self.client.shard_indexes([self.object(name)])
        if isinstance(index, ForebayError):
            raise index
        return index

    def object(self, name: str) -> Object:
        """The object of this name, whether it exists or not."""
        return Object(self, name)

    def objects(
        self,
        names: Iterable[str] | None = None,
        range: ObjectRange | None = None,
        template: str | None = None,
    ) -> ObjectGroup:
        """A group of objects: a list of names, a range of numbers, or a template.

        Example:
            >>> bucket.objects(template="shard-{0000..0099}.tar")   # doctest: +SKIP
        """
        if sum(given is not None for given in (names, range, template)) != 1:
            raise ValueError("objects() takes exactly one of names, range and template")
        if names is not None:
            if isinstance(names, str):
                raise TypeError(f"names must be a list of names, not the string {names!r}")
            return ObjectGroup(self, names)
        if range is not None:
            return ObjectGroup(self, range.names())
        return ObjectGroup(self, _core.expand_template(template or ""))

    def put_many(self, items: Iterable[tuple[str, Buffer]], concurrency: int = 16) -> int:
        """The number of objects stored, ``concurrency`` of them at a time.

        The first failure is raised, its message names the object; objects put before it stay.
        """
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, not {concurrency}")
        count = total_bytes = pending_bytes = 0
        pending: list[tuple[str, bytes]] = []
        with call_span("forebay.put_many", self.uri) as span:
            for name, data in items:
                pending.append((name, as_bytes(data)))
                pending_bytes += len(pending[-1][1])
                if pending_bytes >= _PUT_ROUND_BYTES or len(pending) >= _PUT_ROUND_OBJECTS:
                    self.client._native.put_many(self.uri, pending, concurrency)
                    count += len(pending)
                    total_bytes += pending_bytes
                    pending, pending_bytes = [], 0
            if pending:
                self.client._native.put_many(self.uri, pending, concurrency)
                count += len(pending)
                total_bytes += pending_bytes
            span.count(objects=count, bytes=total_bytes)
        return count

    @overload
    def get_many(
        self, names: Iterable[str], *, as_bytes: Literal[False] = False
    ) -> list[memoryview]: ...
    @overload
    def get_many(self, names: Iterable[str], *, as_bytes: Literal[True]) -> list[bytes]: ...
    def get_many(
        self, names: Iterable[str], *, as_bytes: bool = False
    ) -> list[memoryview] | list[bytes]:
        """The contents of many objects in the order of ``names``, as one batch.

        Args:
            as_bytes: Give ``bytes`` instead of views of the memory that they came in. Large ones are
                received into them; a small one costs a copy, which is the quicker of the two.

        Raises:
            NotFound: One of them is not there; the message names it.
        """
        wanted = names if isinstance(names, list) else list(names)
        with call_span("forebay.batch", self.uri, objects=len(wanted)) as span:
            answers = self.client._native.batch_all([self.uri], None, wanted, None, as_bytes, True)
            span.received(answers)
        return answers if as_bytes else [memoryview(answer) for answer in answers]

    def prefetch(
        self,
        names: Iterable[str] | None = None,
        *,
        template: str | None = None,
        prefix: str | None = None,
    ) -> Job:
        """The job that brings these objects from the backend into the cluster."""
        return self._start("prefetch", names, template, prefix)

    def prefetch_plan(
        self,
        names: Iterable[str] | None = None,
        *,
        template: str | None = None,
        prefix: str | None = None,
    ) -> PrefetchPlan:
        """The objects, bytes and requests of a :meth:`prefetch`. A prefix is listed once.

        Raises:
            ValueError: Not exactly one of names, template and prefix is given.
            InvalidArgument: The bucket has no backend, or keeps no copies.
            NotFound: The bucket, or an object of ``names`` or ``template``, does not exist.
        """
        chosen = self._chosen("prefetch_plan", names, template, prefix)
        plan = self.client._native.prefetch_plan(self.uri, chosen, prefix or "")
        return PrefetchPlan.from_json(json.loads(plan))

    def evict(
        self,
        names: Iterable[str] | None = None,
        *,
        template: str | None = None,
        prefix: str | None = None,
    ) -> Job:
        """The job that drops the cluster's copies of these objects; the backend keeps its own."""
        return self._start("evict", names, template, prefix)

    def write_back(
        self,
        to: Bucket | str,
        names: Iterable[str] | None = None,
        *,
        template: str | None = None,
        prefix: str | None = None,
        remove: bool = False,
    ) -> Job:
        """Starts a job that writes these native objects to a bucket with a backend, under the same names.

        An object counts as written when the cloud confirms its size, its ETag, and which write of the
        object it is. An object that is there already is not sent again, and an older version never
        replaces a newer one.

        Args:
            to: The bucket, or a URI that may go on with a folder, such as ``s3://backup/run-7``.
            remove: An object that was named and does not exist here is removed there too, if it was
                written from here; without this, it is a failure.

        Raises:
            InvalidArgument: This bucket has a backend itself, or ``to`` has none.
        """
        bucket, folder = (to, "") if isinstance(to, Bucket) else self.client.bucket_of(to)
        chosen = self._chosen("write_back", names, template, prefix)
        if folder and not folder.endswith("/"):
            folder += "/"
        native = self.client._native
        id = native.start_write_back(self.uri, chosen, prefix or "", bucket.uri, folder, remove)
        return Job(self.client, id)

    def _start(
        self, kind: str, names: Iterable[str] | None, template: str | None, prefix: str | None
    ) -> Job:
        chosen = self._chosen(kind, names, template, prefix)
        return Job(self.client, self.client._native.start_job(kind, self.uri, chosen, prefix or ""))

    def _chosen(
        self, kind: str, names: Iterable[str] | None, template: str | None, prefix: str | None
    ) -> list[str] | None:
        """The names that were given; None where a prefix was."""
        if sum(given is not None for given in (names, template, prefix)) != 1:
            raise ValueError(
                f'{kind}() takes exactly one of names, template and prefix; prefix="" is all'
            )
        if prefix is not None:
            return None
        return list(self.objects(names=names, template=template).names)

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, Bucket):
            return NotImplemented
        return (self.client.endpoint, self.uri) == (other.client.endpoint, other.uri)

    def __hash__(self) -> int:
        return hash((self.client.endpoint, self.uri))

    def __reduce__(self) -> tuple[Any, ...]:
        return Bucket, (self.client, self.name, self.provider)

    def __repr__(self) -> str:
        return f"Bucket({self.uri!r})"


class ObjectGroup:
    """Some objects of one bucket, in a given order."""

    __slots__ = ("bucket", "names")

    def __init__(self, bucket: Bucket, names: Iterable[str]) -> None:
        self.bucket = bucket
        self.names: Sequence[str] = tuple(names)

    def list_snapshot(self, prefix: str = "") -> Listing:
        """Names and sizes of the group, in its order, from one listing of the bucket.

        Args:
            prefix: Only names that start so.

        Raises:
            NotFound: An object of the group is not in the bucket; the message names it.
        """
        wanted = [name for name in self.names if name.startswith(prefix)]
        if not wanted:
            return Listing.from_pairs(())
        shared = os.path.commonprefix([min(wanted), max(wanted)])
        needed = set(wanted)
        sizes = {
            name: size for name, size in self.bucket.list_snapshot(str(shared)) if name in needed
        }
        for name in wanted:
            if name not in sizes:
                raise NotFound(f"{self.bucket.uri}/{name} does not exist")
        return Listing.from_pairs((name, sizes[name]) for name in wanted)

    def prefetch(self) -> Job:
        """The job that brings the group into the cluster."""
        return self.bucket.prefetch(self.names)

    def evict(self) -> Job:
        """The job that drops the cluster's copies of the group."""
        return self.bucket.evict(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Object]:
        return map(self.bucket.object, self.names)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ObjectGroup):
            return NotImplemented
        return (self.bucket, self.names) == (other.bucket, other.names)

    def __hash__(self) -> int:
        return hash((self.bucket, self.names))

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectGroup, (self.bucket, self.names)

    def __repr__(self) -> str:
        return f"<ObjectGroup of {len(self)} objects in {self.bucket.uri}>"
