"""Map-style datasets: any sample by its index, a batch of them by one request per target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, SupportsIndex

from forebay import Client, ForebayError
from forebay_torch.base_map_dataset import BaseMapDataset
from forebay_torch.compat.s3.dataset import S3MapDataset
from forebay_torch.config import Config
from forebay_torch.custom_getitem import cached_content, decides_by_item
from forebay_torch.object_index import Answer
from forebay_torch.policy import NEVER_SKIPPED, OnError, Policy
from forebay_torch.sample_format import SampleFormat
from forebay_torch.source import PrefixMap, Sources
from forebay_torch.source_arguments import sources_of

__all__ = ["BaseMapDataset", "MapDataset"]

# How many objects in a row are tried where one cannot be had.
_MAX_REPLACEMENT_TRIES = 20


class MapDataset(BaseMapDataset):
    """Samples that are whole objects.

    A sample is ``(name, content)``, both forms below can change that:

    - ``MapDataset(bucket, prefix_map={bucket: "train/"})``
    - ``MapDataset(project_name=..., bucket_name="images", config=Config(prefix="train/"),
      data_format_fn=decode)``, where a sample is ``decode(content)``.

    Samples are in name order within a source and ``len()`` counts objects. The dataset pickles,
    and works with any number of workers, forked or spawned; which rank reads what is the
    sampler's choice.

    Args:
        ais_source_list: As for BaseMapDataset.
        prefix_map: As for BaseMapDataset.
        project_name: The project that Google counts reads of ``bucket_name`` for. It is the one of
            the cluster's credentials in any case: this one is only compared, where those are known.
        bucket_name: Name or URI of the bucket to read.
        config: Settings; its ``prefix`` selects objects of ``bucket_name``.
        data_format_fn: Called with each content in the worker; its result is the sample.
        storage_client: A ``forebay.Client``; by default one from the environment.
        return_name: Whether a sample is a pair with the name; by default only when neither
            ``bucket_name`` nor ``data_format_fn`` is given.
        zero_copy: Hand out ``memoryview`` instead of ``bytes``. A view that a worker process hands
            over is copied: it saves a copy with ``num_workers=0``, a ThreadLoader, or a
            ``data_format_fn`` or ``collate_fn``.
        on_error: How to treat an object that cannot be had, or that ``data_format_fn`` fails
            on: ``raise``; ``replace`` it by the next object of the dataset that can be had, so
            that batches keep their lengths; or a function of its name and the exception, whose
            result takes the sample's place. That the cluster does not answer, or refuses, is
            never replaced. ``retry:N`` reads it up to N times more, then raises.
            ``stats().failed`` counts.
        snapshot: As for BaseMapDataset, with ``etl_name`` and ``allow_empty``.
    """

    def __init__(
        self,
        ais_source_list: Sources | None = None,
        prefix_map: PrefixMap | None = None,
        etl_name: str | None = None,
        *,
        sources: Sources | None = None,
        project_name: str | None = None,
        bucket_name: str | None = None,
        config: Config | None = None,
        data_format_fn: Callable[[Any], Any] | None = None,
        storage_client: Client | None = None,
        return_name: bool | None = None,
        zero_copy: bool = False,
        on_error: OnError = "raise",
        snapshot: bool = False,
        allow_empty: bool = False,
    ) -> None:
        owner = type(self).__name__
        if on_error == "skip":
            raise ValueError(
                f'{owner}: on_error="skip" would make batches shorter than the sampler\'s; '
                '"replace" takes the next object that can be had'
            )
        chosen, prefixes = sources_of(
            owner,
            (ais_source_list, sources),
            prefix_map,
            bucket_name,
            config,
            storage_client,
            project_name,
        )
        super().__init__(
            chosen,
            prefixes,
            client=storage_client,
            config=config,
            etl_name=etl_name,
            snapshot=snapshot,
            allow_empty=allow_empty,
        )
        self.project_name = project_name
        self._format = SampleFormat(
            data_format_fn,
            bucket_name is None and data_format_fn is None if return_name is None else return_name,
            zero_copy,
        )
        self._as_bytes = not zero_copy
        self._policy = Policy(owner, on_error, ("raise", "replace"), self._counters)

    @classmethod
    def from_prefix(cls, uri: str, **options: Any) -> S3MapDataset:
        """All objects whose URIs begin so, as s3torchconnector's users know it: samples are readers,
        or what ``transform`` makes of them, and nothing is listed before the first is needed.

        Args:
            uri: ``s3://bucket/prefix``, or the URI of any other bucket of the cluster.
            options: Those of ``forebay_torch.compat.s3.S3MapDataset.from_prefix``.
        """
        return S3MapDataset.from_prefix(uri, **options)

    @classmethod
    def from_objects(cls, uris: str | Iterable[str], **options: Any) -> S3MapDataset:
        """These objects, in this order; else as ``from_prefix``."""
        return S3MapDataset.from_objects(uris, **options)

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        if isinstance(index, slice):
            return self._samples(self.rows(range(*index.indices(len(self)))))
        row = self.row(index)
        answer = cached_content(self._index, row)
        return self._sample(row, self._one(row) if answer is None else answer)

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        if decides_by_item(type(self), MapDataset):
            return self._each(indices)
        return self._samples(self.rows(indices))

    def _samples(self, rows: Sequence[int]) -> list[Any]:
        """The samples at these rows, from contents that were fetched together."""
        if self._config.batch_bytes == 0:
            return [self._sample(row, self._one(row)) for row in rows]
        names, answers = self._named(rows)
        if self._format.is_plain and set(map(type, answers)) == {bytes}:
            return list(zip(names, answers, strict=True))
        return list(map(self._sample, rows, answers, names))

    def _one(self, row: int) -> Answer:
        """The content of one object, by a plain read; or why it cannot be had."""
        try:
            return self._index.object(row).get().memoryview()
        except ForebayError as error:
            return error

    def _sample(self, row: int, answer: Answer, name: str | None = None) -> Any:
        """The sample at ``row``, or what takes its place."""
        name = self._index.listing.name(row) if name is None else name
        try:
            return self._formatted(name, answer)
        except Exception as error:
            failed = error
            return self._policy.instead(
                name,
                error,
                lambda: self._replacement(row, failed),
                lambda: self._formatted(name, self._one(row)),
            )

    def _replacement(self, row: int, error: Exception) -> Any:
        """The sample of the next object that can be had."""
        for step in range(1, min(len(self), _MAX_REPLACEMENT_TRIES)):
            other = (row + step) % len(self)
            try:
                return self._formatted(self._index.listing.name(other), self._one(other))
            except NEVER_SKIPPED:
                raise
            except Exception as another:
                error.add_note(f"nor could what follows it be had: {another}")
        raise error

    def _formatted(self, name: str, answer: Answer) -> Any:
        if isinstance(answer, ForebayError):
            raise answer
        return self._format(name, answer)
