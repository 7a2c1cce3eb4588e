"""Checkpoints of ``s3torchconnector``: files for ``torch.save`` and ``torch.load`` by URI."""

from __future__ import annotations

from forebay import Client, Retry, Writer
from forebay_torch.checkpoint.checkpoint import Checkpoint
from forebay_torch.compat.s3.config import S3ClientConfig
from forebay_torch.compat.s3.reader import RangeS3Reader, ReaderConstructor, S3Reader, with_names

__all__ = ["S3Checkpoint", "S3Writer"]


class S3Writer(Writer):
    """A file that becomes an object, as a whole, when it is closed.

    Leaving its ``with`` block by an exception stores nothing.
    """

    def writable(self) -> bool:
        """Whether it is open."""
        return not self.closed


class S3Checkpoint:
    """Files for ``torch.save`` and ``torch.load`` by URI; see :class:`forebay_torch.Checkpoint`.

    Args:
        region: Accepted for compatibility, with ``endpoint``.
        s3client_config: ``part_size`` and ``max_attempts``; by default parts have 16 MiB.
        reader_constructor: How ``reader`` reads: one of S3ReaderConstructor's; by default by ranges.
        client: Of the cluster; by default one from the environment.

    Example:
        >>> checkpoint = S3Checkpoint(region="us-east-1")
        >>> with checkpoint.writer("s3://bucket/epoch-0.pt") as writer:
        ...     torch.save(model.state_dict(), writer)
        >>> with checkpoint.reader("s3://bucket/epoch-0.pt") as reader:
        ...     model.load_state_dict(torch.load(reader, weights_only=True))
    """

    def __init__(
        self,
        region: str | None = None,
        endpoint: str | None = None,
        s3client_config: S3ClientConfig | None = None,
        *,
        reader_constructor: ReaderConstructor | None = None,
        client: Client | None = None,
    ) -> None:
        self._read = reader_constructor
        self.region = region
        self.endpoint = endpoint
        config = s3client_config
        own = (client or Client()).with_retry(config and Retry(max_attempts=config.max_attempts))
        self._checkpoint = (
            Checkpoint(storage_client=own)
            if config is None
            else Checkpoint(storage_client=own, part_size=config.part_size)
        )

    def reader(self, s3_uri: str) -> S3Reader:
        """The object as a seekable file; nothing is asked for before the first read.

        Raises:
            ValueError: It is no URI of an object.
            S3Exception: At a read: it is not there, was replaced, or cannot be read.
        """
        item = self._checkpoint.object(s3_uri)
        if self._read is not None:
            return self._read(item)
        return with_names(RangeS3Reader(item, num_workers=self._checkpoint.concurrency), item)

    def writer(self, s3_uri: str) -> S3Writer:
        """A file whose content becomes the object when it is closed.

        Raises:
            ValueError: It is no URI of an object.
            S3Exception: At ``write`` or ``close``: a part could not be stored.
        """
        files = self._checkpoint
        return S3Writer(files.object(s3_uri), files.parts_ahead, part_size=files.part_size)
