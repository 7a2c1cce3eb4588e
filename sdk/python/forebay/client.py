"""The way into a cluster."""

from __future__ import annotations

import itertools
import json
import operator
import os
from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from forebay import _core
from forebay.batch import Batch
from forebay.bucket import Bucket
from forebay.config import find_ca_file, find_endpoint
from forebay.dsort import DsortOptions, dsort_spec
from forebay.errors import ForebayError, note_endpoint
from forebay.job import Job
from forebay.listing import Listing
from forebay.pending import PendingMany, contents
from forebay.retry import Retry
from forebay.shard import ShardIndex
from forebay.spans import call_span

if TYPE_CHECKING:
    from typing import Unpack

    from forebay.object import Object

__all__ = ["Client", "Cluster"]


class Client:
    """A client of one cluster; cheap to make, and nothing is sent before it is used.

    It learns from any gateway which target owns which object and then talks to targets directly.
    Safe to use from many threads. It survives a fork, also one made while it is in use, and
    pickles as its settings.

    Args:
        endpoint: URL of a gateway, or of several with commas between them. By default
            ``FOREBAY_ENDPOINT``, then ``AIS_ENDPOINT`` from the environment, then ``endpoint`` in
            the configuration file (:mod:`forebay.config`). Where nobody names one it is a server
            of this user's own, which is started if need be (:mod:`forebay.local`); a notice says
            so.
        timeout: Seconds without progress after which a call gives up; until then, failures that
            may pass are tried again. An entry of a batch is progress, and so are 16 KiB; bytes that
            trickle in more slowly are not. Where every endpoint refuses connections, and none was
            ever reached, a call gives up after 4 s. After a 429 fewer requests go out at once for a
            while.
        retry: How targets try clouds again for this client: a Retry, or one of
            google.api_core's; by default as the bucket has it.
        notices: Whether notices go to stderr, such as the line about a server of this user's own;
            by default as ``FOREBAY_NOTICES`` and the configuration file have it, else yes.
        ca_file: PEM file with CAs that an endpoint with ``https://`` may have its certificate of,
            beside those of the system; by default ``FOREBAY_CA_FILE``, then ``AIS_CLIENT_CA``, then
            ``ca_file`` in the configuration file.
        token: The token of a user that every request carries. By default ``FOREBAY_TOKEN``, then
            ``AIS_AUTHN_TOKEN``, then the file that ``FOREBAY_TOKEN_FILE`` or ``AIS_AUTHN_TOKEN_FILE``
            names, then that of ``forebay auth login``; a file is read again when it changes. A pickled
            client contains the token that is given here, and none of the others.

    Example:
        >>> Client("http://127.0.0.1:7400").bucket("images").uri
        'ais://images'
    """

    __slots__ = ("endpoint", "timeout", "retry", "_ca_file", "_local", "_native", "_notices", "_token")

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        timeout: float = 60.0,
        retry: Any = None,
        notices: bool | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        token: str | None = None,
    ) -> None:
        self._init(endpoint, timeout, retry, notices=notices, ca_file=ca_file, token=token)

    def _init(
        self,
        endpoint: str | None,
        timeout: float,
        retry: Any,
        has_contact: bool = False,
        notices: bool | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        token: str | None = None,
    ) -> None:
        if not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds, not {timeout!r}")
        found = find_endpoint(endpoint)
        self._local = found is None
        if found is None:
            # Most never need it.
            from forebay import local

            found = local.join(notices).endpoint
        self.endpoint = found
        note_endpoint(found, self._local)
        self.timeout = timeout
        self._notices = notices
        self.retry = Retry.of(retry)
        header = None if self.retry is None else self.retry.header()
        self._ca_file = find_ca_file(ca_file, endpoint=endpoint)
        self._token = token
        self._native = _core.Client(
            self.endpoint, timeout, header, has_contact, self._ca_file, token
        )

    def with_retry(self, retry: Any) -> Client:
        """A client like this one for which targets try clouds again so; itself for None."""
        if retry is None:
            return self
        return _make_client(
            self.endpoint,
            self.timeout,
            Retry.of(retry),
            self._native.has_contact(),
            self._notices,
            self._ca_file,
            self._token,
        )

    def bucket(self, name: str, provider: str = "ais") -> Bucket:
        """The bucket of this name, whether it exists or not.

        Args:
            name: Its name alone; for ``s3://data`` see :meth:`bucket_of`.
            provider: ``ais`` (or ``fb``), ``aws`` (``s3``), ``gcp`` (``gs``), ``azure`` (``az``)
                or ``ht``.
        """
        return Bucket(self, name, provider)

    def bucket_of(self, uri: str) -> tuple[Bucket, str]:
        """The bucket of a URI such as ``s3://data/train/``, and what follows its name."""
        scheme, separator, rest = uri.partition("://")
        if not separator:
            scheme, rest = "ais", uri
        name, _, path = rest.partition("/")
        return Bucket(self, name, scheme), path

    def buckets(self, provider: str | None = None) -> list[Bucket]:
        """All buckets that the cluster knows, or those of one provider."""
        return [self.bucket_of(uri)[0] for uri in self._native.list_buckets(provider)]

    def batch(
        self,
        objects: Iterable[Object | str] = (),
        bucket: Bucket | None = None,
        *,
        on_error: Literal["raise", "return"] = "raise",
    ) -> Batch:
        """A batch of objects to get at once: one request per owning target.

        Args:
            objects: Objects, or names in ``bucket``.
            bucket: Where bare names are.
            on_error: ``raise`` the first failure, or ``return`` each as ``BatchResult.error``.
        """
        batch = Batch(self, bucket, on_error=on_error)
        for item in objects:
            batch.add(item)
        return batch

    @overload
    def get_many(
        self,
        objects: Iterable[tuple[Bucket, str]],
        *,
        on_error: Literal["raise"] = "raise",
        as_bytes: Literal[False] = False,
    ) -> list[memoryview]: ...
    @overload
    def get_many(
        self,
        objects: Iterable[tuple[Bucket, str]],
        *,
        on_error: Literal["raise"] = "raise",
        as_bytes: Literal[True],
    ) -> list[bytes]: ...
    @overload
    def get_many(
        self,
        objects: Iterable[tuple[Bucket, str]],
        *,
        on_error: Literal["return"],
        as_bytes: Literal[False] = False,
    ) -> list[memoryview | ForebayError]: ...
    @overload
    def get_many(
        self,
        objects: Iterable[tuple[Bucket, str]],
        *,
        on_error: Literal["return"],
        as_bytes: Literal[True],
    ) -> list[bytes | ForebayError]: ...
    def get_many(
        self,
        objects: Iterable[tuple[Bucket, str]],
        *,
        on_error: Literal["raise", "return"] = "raise",
        as_bytes: bool = False,
    ) -> Sequence[memoryview | bytes | ForebayError]:
        """The contents of many objects in their order: one request per owning target.

        Args:
            on_error: ``raise`` the first failure, or ``return`` each in its place.
            as_bytes: Give ``bytes`` instead of views of the memory that they came in. Large ones are
                received into them; a small one costs a copy, which is the quicker of the two.

        Raises:
            NotFound: One of them is not there; the message names it.
        """
        buckets, bucket_of, names = self._wanted(objects)
        if not names:
            return []
        raises = on_error == "raise"
        with call_span("forebay.batch", ", ".join(buckets), objects=len(names)) as span:
            answers = self._native.batch_all(buckets, bucket_of, names, None, as_bytes, raises)
            span.received(answers)
        return contents(answers, as_bytes)

    def submit_many(
        self, objects: Iterable[tuple[Bucket, str]], *, as_bytes: bool = False
    ) -> PendingMany:
        """As ``get_many`` with ``on_error="return"``, but the objects come while this thread goes on.

        No thread of Python waits for them. If the result is never asked for, the request is dropped.

        Args:
            as_bytes: As of ``get_many``.
        """
        buckets, bucket_of, names = self._wanted(objects)
        if not names:
            return PendingMany(None, as_bytes)
        span = call_span("forebay.batch", ", ".join(buckets), objects=len(names))
        with span.requests():
            pending = self._native.begin_batch(buckets, bucket_of, names, as_bytes)
        return PendingMany(pending, as_bytes, span)

    def _wanted(
        self, objects: Iterable[tuple[Bucket, str]]
    ) -> tuple[list[str], list[int] | None, list[str]]:
        """Buckets; of each object which of them it is in, None if there is only one; and its name."""
        pairs = list(objects)
        if not pairs:
            return [], None, []
        buckets_of, names = zip(*pairs, strict=True)
        first: Bucket = buckets_of[0]
        if all(map(operator.is_, buckets_of, itertools.repeat(first))):
            return [self._uri_of(first)], None, list(names)
        buckets: dict[str, int] = {}
        bucket_of: list[int] = []
        last, at = None, 0
        for bucket in buckets_of:
            if bucket is not last:
                last, at = bucket, buckets.setdefault(self._uri_of(bucket), len(buckets))
            bucket_of.append(at)
        return list(buckets), bucket_of, list(names)

    def _uri_of(self, bucket: Bucket) -> str:
        if bucket.client.endpoint != self.endpoint:
            raise ValueError(f"{bucket} is in the cluster at {bucket.client.endpoint}")
        return bucket.uri

    def shard_indexes(
        self, shards: Iterable[Object], *, concurrency: int = 16
    ) -> list[ShardIndex | ForebayError]:
        """The index of each shard, ``concurrency`` of them at a time; failures are returned."""
        wanted = list(shards)
        buckets: dict[str, int] = {}
        bucket_of: list[int] = []
        for shard in wanted:
            if shard.bucket.client.endpoint != self.endpoint:
                raise ValueError(f"{shard!r} is in the cluster at {shard.bucket.client.endpoint}")
            bucket_of.append(buckets.setdefault(shard.bucket.uri, len(buckets)))
        names = [shard.name for shard in wanted]
        with call_span("forebay.shard_indexes", ", ".join(buckets), objects=len(names)):
            answers = self._native.shard_indexes(list(buckets), bucket_of, names, concurrency)
        indexes: list[ShardIndex | ForebayError] = []
        for shard, answer in zip(wanted, answers, strict=True):
            if isinstance(answer, ForebayError):
                indexes.append(answer)
                continue
            format, version, text, ends, sizes, raw_offsets = answer
            offsets = array("Q")
            offsets.frombytes(raw_offsets)
            members = Listing.from_buffers(text, ends, sizes)
            indexes.append(ShardIndex(shard.uri, format, version, members, offsets))
        return indexes

    def job(self, id: str) -> Job:
        """The job of this id."""
        return Job(self, id)

    def dsort(
        self,
        source: Bucket | str,
        destination: Bucket | str,
        template: str = "shard-%06d",
        **options: Unpack[DsortOptions],
    ) -> Job:
        """Writes the records of shards into other shards, in another order.

        A record is all members of one key (WebDataset's) in one shard; it is never split. No output
        shard is to be seen before all of them are written.

        Args:
            source: The shards: a bucket, or a URI with a prefix or a template behind it, such as
                ``ais://shards/train-{0000..0099}.tar``.
            destination: Bucket of the output shards.
            template: Names of the output shards, in one of three spellings: ``shard-%06d``,
                ``shard-{0000..0999}``, ``shard-@0999``. Not looked at with ``ekm``.
            **options: See :class:`~forebay.dsort.DsortOptions`.

        Raises:
            InvalidArgument: Something of the above makes no sense, or there are too few names.
            NotFound: There is no such bucket, or nothing to sort.
            ForebayError: The input is not as it should be; nothing was written.

        Example:
            >>> client.dsort("ais://a", "ais://b", algorithm="shuffle", seed=7)  # doctest: +SKIP
        """
        spec = dsort_spec(self, source, destination, template, options)
        return Job(self, self._native.start_dsort(json.dumps(spec)))

    def cluster(self) -> Cluster:
        """Returns the cluster: its nodes, settings and statistics."""
        return Cluster(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Client):
            return NotImplemented
        mine, others = (self.endpoint, self.timeout), (other.endpoint, other.timeout)
        return (*mine, self.retry, self._token) == (*others, other.retry, other._token)

    def __hash__(self) -> int:
        return hash((self.endpoint, self.timeout, self.retry))

    def __reduce__(self) -> tuple[Any, ...]:
        # A process joins the local server before it uses it.
        endpoint = None if self._local else self.endpoint
        has_contact = self._native.has_contact()
        settings = (
            endpoint,
            self.timeout,
            self.retry,
            has_contact,
            self._notices,
            self._ca_file,
            self._token,
        )
        return _make_client, settings

    def __repr__(self) -> str:
        return f"Client({self.endpoint!r})"


class Cluster:
    """Views of the cluster as a whole."""

    __slots__ = ("_client",)

    def __init__(self, client: Client) -> None:
        self._client = client

    def map(self) -> dict[str, Any]:
        """Nodes, buckets and the version of both."""
        state: dict[str, Any] = json.loads(self._client._native.cluster_map())
        return state

    def info(self) -> dict[str, Any]:
        """Every node with its usage, and the sums."""
        info: dict[str, Any] = json.loads(self._client._native.cluster_info())
        return info


def _make_client(
    endpoint: str | None,
    timeout: float,
    retry: Retry | None,
    has_contact: bool = False,
    notices: bool | None = None,
    ca_file: str | None = None,
    token: str | None = None,
) -> Client:
    client = Client.__new__(Client)
    client._init(endpoint, timeout, retry, has_contact, notices, ca_file, token)
    return client
