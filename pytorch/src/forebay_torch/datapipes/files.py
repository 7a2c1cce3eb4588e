"""Files by their URLs: listed, and opened while the one before is read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from torch.utils.data.datapipes.datapipe import IterDataPipe
from torch.utils.data.datapipes.utils.common import StreamWrapper

from forebay import Bucket, Client, NotFound, Object, RangeReader
from forebay_torch.datapipes.sharing import Shared

__all__ = [
    "AISFileLister",
    "AISFileLoader",
    "OpenFile",
    "S3FileLister",
    "S3FileLoader",
    "register",
]

_BUFFER_BYTES = 32 << 20


class _Urls:
    """Base of the pipes: URLs and the cluster that they are of."""

    def __init__(
        self,
        source: Iterable[str],
        request_timeout_ms: int,
        client: Client | None,
        allow_empty: bool = False,
    ) -> None:
        self.source_datapipe = source
        self._allow_empty = allow_empty
        self._timeout_ms = request_timeout_ms
        self._client = client

    def _cluster(self) -> Client:
        # Where none was given each process finds its own.
        if self._client is not None:
            return self._client
        return Client(timeout=self._timeout_ms / 1000) if self._timeout_ms > 0 else Client()

    def _names(self, url: str, bucket: Bucket, prefix: str) -> Iterator[str]:
        """The names of the objects that a URL stands for; those that stand for a folder are none.

        Raises:
            ValueError: There is none, and the pipe was made without ``allow_empty``.
        """
        is_empty = not self._allow_empty
        for name in bucket.list_snapshot(prefix).names():
            if not name.endswith("/"):
                is_empty = False
                yield name
        if is_empty:
            raise ValueError(
                f"{type(self).__name__} found no object for {url!r}: in {bucket.uri} no name begins "
                f"with {prefix!r}; check it, or pass allow_empty=True"
            )


class S3FileLister(_Urls, Shared, IterDataPipe[str]):
    """The URLs of all objects whose own begin with those of ``source_datapipe``.

    The ranks and workers of a DataLoader share the URLs, unless a ``sharding_filter`` does that.
    Functional name: ``list_files_by_s3``.

    Args:
        source_datapipe: URLs such as ``s3://bucket/prefix``, of any buckets of the cluster.
        length: The result of ``len()``.
        request_timeout_ms: Milliseconds without progress after which a request is given up; -1 is
            the client's own.
        region: Accepted for compatibility: the cluster knows where its buckets are.
        client: The cluster; by default that of ``forebay.Client()``.
        allow_empty: Whether a URL may stand for no object.

    Raises:
        NotFound: There is no such bucket; while iterating.
        ValueError: A URL stands for no object; while iterating.
    """

    def __init__(
        self,
        source_datapipe: Iterable[str],
        length: int = -1,
        request_timeout_ms: int = -1,
        region: str = "",
        *,
        client: Client | None = None,
        allow_empty: bool = False,
    ) -> None:
        super().__init__(source_datapipe, request_timeout_ms, client, allow_empty)
        self.length = length
        self.region = region

    def __iter__(self) -> Iterator[str]:
        return self.shared(self._urls())

    def _urls(self) -> Iterator[str]:
        client = self._cluster()
        for url in self.source_datapipe:
            bucket, prefix = client.bucket_of(url)
            for name in self._names(url, bucket, prefix):
                yield _url(url, bucket, name)

    def __len__(self) -> int:
        if self.length < 0:
            raise TypeError(f"{type(self).__name__} instance doesn't have valid length")
        return self.length


class OpenFile(StreamWrapper):
    """A file of :class:`S3FileLoader`: PyTorch's wrapper, which closes what is forgotten, as a
    context manager."""

    def __iter__(self) -> Iterator[bytes]:
        # Not a generator, which would close the file when somebody ends a loop early.
        return iter(self.file_obj)

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class S3FileLoader(_Urls, Shared, IterDataPipe[tuple[str, OpenFile]]):
    """Each URL with its file, open for reading: ``(url, file)``.

    The ranks and workers of a DataLoader share the files, unless a pipe before or behind it shares
    them: a lister of this module, or a ``sharding_filter``.

    Nothing is read but what the consumer reads, and what comes behind it. The next file is opened,
    and its beginning fetched, while the consumer is at the one before. In the next
    epoch, objects that were read from a cloud are in the cluster. Functional name: ``load_files_by_s3``.

    Args:
        source_datapipe: URLs of objects; those of a prefix stand for all objects that begin so.
        request_timeout_ms, region, client: As of :class:`S3FileLister`.
        buffer_size: Most bytes of one file in memory; by default 32 MiB.
        multi_part_download: Whether a file is read by several ranges at once.
        num_workers: How many ranges that are; the executors of the original.
        open_ahead: How many files are opened before they are asked for; 0 is none.
        allow_empty: Whether the URL of a prefix may stand for no object.

    Raises:
        NotFound: An object is not there; while iterating.
        ValueError: The URL of a prefix stands for no object; while iterating.
        ObjectChanged: It was replaced while it was read.
    """

    def __init__(
        self,
        source_datapipe: Iterable[str],
        request_timeout_ms: int = -1,
        region: str = "",
        buffer_size: int | None = None,
        multi_part_download: bool | None = None,
        *,
        client: Client | None = None,
        num_workers: int = 4,
        open_ahead: int = 1,
        allow_empty: bool = False,
    ) -> None:
        super().__init__(source_datapipe, request_timeout_ms, client, allow_empty)
        if buffer_size is not None and buffer_size < 2:
            raise ValueError(f"buffer_size must be at least 2 bytes, not {buffer_size}")
        if num_workers < 1 or open_ahead < 0:
            raise ValueError("num_workers must be at least 1, open_ahead at least 0")
        self.region = region
        # A reader has two windows: the one that is read, and the next one.
        self._window = (buffer_size or _BUFFER_BYTES) // 2
        self._num_workers = 1 if multi_part_download is False else num_workers
        self._open_ahead = open_ahead

    def __iter__(self) -> Iterator[tuple[str, OpenFile]]:
        files = self.shared(self._files())
        if not self._open_ahead:
            for url, item in files:
                yield url, self._stream(url, item)
            return
        coming: deque[tuple[str, Future[OpenFile]]] = deque()
        with ThreadPoolExecutor(1, "forebay-open-ahead") as thread:
            try:
                for url, item in files:
                    coming.append((url, thread.submit(self._stream, url, item)))
                    if len(coming) > self._open_ahead:
                        ready, future = coming.popleft()
                        yield ready, future.result()
                while coming:
                    ready, future = coming.popleft()
                    yield ready, future.result()
            finally:
                for _, future in coming:
                    future.cancel()

    def __len__(self) -> int:
        return len(self.source_datapipe)  # type: ignore[arg-type]

    def _files(self) -> Iterator[tuple[str, Object]]:
        client = self._cluster()
        for url in self.source_datapipe:
            bucket, name = client.bucket_of(url)
            if name and not name.endswith("/"):
                yield url, bucket.object(name)
                continue
            for found in self._names(url, bucket, name):
                yield _url(url, bucket, found), bucket.object(found)

    def _stream(self, url: str, item: Object) -> OpenFile:
        reader = RangeReader(item, window=self._window, num_workers=self._num_workers)
        # Here, where an error still belongs to the file, and its beginning is fetched ahead.
        reader.peek(1)
        return OpenFile(reader, name=url)


class AISFileLister(S3FileLister):
    """As :class:`S3FileLister`, with the arguments that AIStore's pipe had.

    Functional name: ``list_files_by_ais``.

    Args:
        url: The cluster's endpoint.
    """

    def __init__(
        self, source_datapipe: Iterable[str], url: str | None = None, length: int = -1
    ) -> None:
        super().__init__(source_datapipe, length, client=Client(url) if url else None)


class AISFileLoader(S3FileLoader):
    """As :class:`S3FileLoader`, with the arguments that AIStore's pipe had.

    Functional name: ``load_files_by_ais``.

    Args:
        url: The cluster's endpoint.
        length: The result of ``len()``; by default as many as there are URLs.
    """

    def __init__(
        self, source_datapipe: Iterable[str], url: str | None = None, length: int = -1
    ) -> None:
        super().__init__(source_datapipe, client=Client(url) if url else None)
        self.length = length

    def __len__(self) -> int:
        return super().__len__() if self.length < 0 else self.length


def _url(given: str, bucket: Bucket, name: str) -> str:
    """The URL of an object, with the scheme of the one that it was found by."""
    scheme, separator, _ = given.partition("://")
    return f"{scheme}://{bucket.name}/{name}" if separator else f"{bucket.uri}/{name}"


def register(name: str, pipe: Any) -> None:
    """Makes a pipe known by its functional name, in place of what has it."""
    # The class of that name is torchdata's old one, or of this module before it was imported again.
    IterDataPipe.functions.pop(name, None)
    IterDataPipe.register_datapipe_as_function(name, pipe)


register("list_files_by_s3", S3FileLister)
register("load_files_by_s3", S3FileLoader)
register("list_files_by_ais", AISFileLister)
register("load_files_by_ais", AISFileLoader)
