"""Iterable datasets whose samples are whole objects."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, repeat
from typing import Any, Literal, NamedTuple

from forebay import Client, ForebayError
from forebay_torch import frameworks
from forebay_torch.base_iter_dataset import GROUP_BYTES, GROUP_OBJECTS, BaseIterDataset
from forebay_torch.compat.s3.dataset import S3IterableDataset
from forebay_torch.config import Config
from forebay_torch.dataset_pass import Pass
from forebay_torch.object_index import Answer
from forebay_torch.policy import LEFT_OUT, Counters, DatasetStats, OnError, Policy
from forebay_torch.progress import Progress
from forebay_torch.sample_format import SampleFormat
from forebay_torch.saved_listing import check_data
from forebay_torch.source import PrefixMap, Sources
from forebay_torch.source_arguments import sources_of

__all__ = ["BaseIterDataset", "IterableDataset", "IterDataset"]

# Groups of small objects that are prefetched: the time of each is that of its request.
_PREFETCH_GROUPS = 3


class _PendingGroup(NamedTuple):
    """A group of objects whose turn comes, and how many bytes it has; ``take`` waits for their
    contents, if they are on their way already."""

    rows: Sequence[int]
    names: list[str]
    size: int
    take: Callable[[], Sequence[Answer]] | None = None


class IterableDataset(BaseIterDataset):
    """Samples that are whole objects, one after the other.

    A sample is ``(name, content)``; with ``bucket_name`` it is the content, and with
    ``data_format_fn`` what that makes of it. Order, ``len()`` and the split over ranks and workers
    are those of BaseIterDataset. ``IterDataset`` is the same class.

    Args:
        ais_source_list: As for BaseMapDataset.
        prefix_map: As for BaseMapDataset.
        etl_name: As for BaseMapDataset.
        project_name: As for MapDataset.
        bucket_name: Name or URI of the bucket to read.
        config: Settings; its ``prefix`` selects objects of ``bucket_name``.
        data_format_fn: Called with each content in the worker; its result is the sample.
        storage_client: A ``forebay.Client``; by default one from the environment.
        return_name: As for MapDataset.
        zero_copy: As for MapDataset.
        on_error: How to treat an object that cannot be had, or that ``data_format_fn`` fails
            on: ``raise``; ``skip`` it with a warning; or a function of its name and the exception,
            whose result takes the sample's place. That the cluster does not answer, or refuses,
            is never skipped. ``retry:N`` reads it up to N times more, then raises.
        show_progress: Show on a terminal's stderr how many samples were read.
        options: ``shard_by_rank``, ``rank``, ``world_size``, ``replication``, ``shuffle``,
            ``seed``, ``equal_length``, ``batch_size``, ``snapshot``, ``warm_ahead`` and
            ``allow_empty`` of BaseIterDataset.

    Example:
        >>> dataset = IterableDataset(bucket, shuffle=True, batch_size=32)
        >>> for step, batch in enumerate(DataLoader(dataset, batch_size=32, num_workers=4), 1):
        ...     state = dataset.state_dict(num_samples=32 * step)
    """

    def __init__(
        self,
        ais_source_list: Sources | None = None,
        prefix_map: PrefixMap | None = None,
        partition_sources_by_worker: bool = False,
        *,
        sources: Sources | None = None,
        etl_name: str | None = None,
        project_name: str | None = None,
        bucket_name: str | None = None,
        config: Config | None = None,
        data_format_fn: Callable[[Any], Any] | None = None,
        storage_client: Client | None = None,
        return_name: bool | None = None,
        zero_copy: bool = False,
        on_error: OnError = "raise",
        show_progress: bool = False,
        **options: Any,
    ) -> None:
        chosen, prefixes = sources_of(
            type(self).__name__,
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
            partition_sources_by_worker,
            client=storage_client,
            config=config,
            etl_name=etl_name,
            **options,
        )
        self.project_name = project_name
        self._as_bytes = not zero_copy
        self._format = SampleFormat(
            data_format_fn,
            bucket_name is None and data_format_fn is None if return_name is None else return_name,
            zero_copy,
        )

        self._show_progress = show_progress
        self._counters = Counters()
        owner = type(self).__name__
        self._policy = Policy(owner, on_error, ("raise", "skip"), self._counters)

    @classmethod
    def from_prefix(cls, uri: str, **options: Any) -> S3IterableDataset:
        """All objects whose URIs begin so; see ``MapDataset.from_prefix``."""
        return S3IterableDataset.from_prefix(uri, **options)

    @classmethod
    def from_objects(cls, uris: str | Iterable[str], **options: Any) -> S3IterableDataset:
        """These objects, in this order; else as ``from_prefix``."""
        return S3IterableDataset.from_objects(uris, **options)

    def __iter__(self) -> Iterator[Any]:
        self.reset()
        return self._shown(self._cursor.open())

    def _shown(self, made: Pass) -> Iterator[Any]:
        with Progress(self._show_progress, self._worker_name()) as progress:
            progress.begin(type(self).__name__)
            self._cursor.begin(made)
            view = self._view(made.total)
            samples = frameworks.checked(type(self).__name__, view._samples(made))
            yield from progress.counted(samples)

    def _samples(self, made: Pass) -> Iterator[Any]:
        deliver = made.deliver
        for rows, names, answers in self._fetched(made):
            if self._are_samples(answers):
                for sample in zip(names, _drained(answers), strict=True):
                    deliver()
                    yield sample
                continue
            drained = _drained(answers)
            for row, name in zip(rows, names, strict=True):
                # Nothing here holds on to a content that was handed out, while the next one comes.
                answer = next(drained)
                deliver()
                try:
                    if isinstance(answer, ForebayError):
                        raise answer
                    sample = self._format(name, answer)
                except Exception as error:
                    again = partial(self._again, row)
                    sample = self._policy.instead(name, error, again=again)
                del answer
                if sample is not LEFT_OUT:
                    yield sample
                del sample

    def _are_samples(self, answers: Iterable[Answer]) -> bool:
        """Whether these are contents as ``bytes`` that only lack their names."""
        is_plain = self._format.is_plain and isinstance(answers, list) and len(answers) > 1
        return is_plain and set(map(type, answers)) == {bytes}

    def _again(self, row: int) -> Any:
        """The sample at ``row``, read once more."""
        return self._format(self._index.listing.name(row), self._index.get_many([row])[0])

    def state_dict(self, num_samples: int | None = None) -> dict[str, Any]:
        """How far the pass under way is, as a few numbers that any shape of job goes on from.

        Args:
            num_samples: How many samples of this rank the training loop has taken in this pass.
                Needed with a plain DataLoader with workers, which read ahead; a
                StatefulDataLoader asks its workers itself (see ``resume_state``).
        """
        view = self._view(self._cursor.position(num_samples).total)
        total, world_size = len(view._index.listing), self._rank_and_world()[1]
        return self._cursor.state(num_samples, total, world_size, view._fingerprint())

    def load_state_dict(
        self, state: Mapping[str, Any], *, data: Literal["same", "listed"] = "same"
    ) -> None:
        """Makes the next pass go on where the state says; the one after it is whole again.

        Any number of ranks and workers may go on. Each rank loads the same state: that of rank 0.

        Args:
            data: As for DistributedShardSampler: ``"listed"`` goes on with what was listed when the
                state was saved, though objects came since.

        Raises:
            ValueError: The state is of other data, of another order or of another seed.
        """
        check_data(type(self).__name__, data)
        view = self._view_then(state, data)
        total, world_size = len(view._index.listing), self._rank_and_world()[1]
        listed = 0 if view is self else total
        self._cursor.load(state, total, world_size, view._fingerprint(), listed=listed)
        self._keep(view)

    def stats(self) -> DatasetStats:
        """Counters of the reads so far, over this process and all its workers."""
        return self._counters.total()

    def _fetched(self, made: Pass) -> Iterator[tuple[Sequence[int], list[str], Iterable[Answer]]]:
        """The rows of a pass, their names, and their contents or why they cannot be had."""
        due = self._due_groups(made)
        # Nothing comes beside the first group: the loop waits for it.
        pending = deque(self._pending_group(rows) for rows in islice(due, 1))
        while pending:
            one = pending.popleft()
            answers = self._fetch(one.rows) if one.take is None else self._counted(one.take)
            while self._is_room_for_more(pending) and (after := next(due, None)) is not None:
                pending.append(self._submitted(after))
            yield one.rows, one.names, answers
            del answers

    def _is_room_for_more(self, pending: Sequence[_PendingGroup]) -> bool:
        """Whether one more group may be asked for, or looked at, while these come."""
        if not pending:
            return True
        if len(pending) == _PREFETCH_GROUPS or pending[-1].take is None:
            return False
        is_small = len(pending[-1].rows) == GROUP_OBJECTS
        return is_small and sum(one.size for one in pending) <= GROUP_BYTES // 2

    def _submitted(self, rows: Sequence[int]) -> _PendingGroup:
        """A group that is on its way, if it is small enough for that."""
        one = self._pending_group(rows)
        if len(rows) < 2 or self._index.is_special or one.size > GROUP_BYTES:
            return one
        take = self._index.submit_many(rows, one.names, as_bytes=self._as_bytes)
        return one._replace(take=take)

    def _pending_group(self, rows: Sequence[int]) -> _PendingGroup:
        """A group that is asked for in its turn."""
        return _PendingGroup(rows, self._index.listing.names_at(rows), sum(self._sizes_at(rows)))

    def _fetch(self, rows: Sequence[int]) -> Iterable[Answer]:
        """The contents of these rows, or why they cannot be had."""
        if len(rows) > 1 or self._index.is_special:
            return self._counted(partial(self._index.try_many, rows, as_bytes=self._as_bytes))
        return self._counted(partial(self._get, rows[0]))

    def _get(self, row: int) -> list[Answer]:
        try:
            reader = self._index.object(row).get()
            return [reader.read_all() if self._as_bytes else reader.memoryview()]
        except ForebayError as error:
            return [error]

    def _counted(self, take: Callable[[], Sequence[Answer]]) -> list[Answer]:
        """Calls ``take``, counts its answers, and returns them."""
        started = time.perf_counter()
        answers = list(take())
        arrived = [answer for answer in answers if not isinstance(answer, ForebayError)]
        self._counters.add(
            objects=len(arrived),
            bytes=sum(map(len, arrived)),
            requests=1,
            fetch_s=time.perf_counter() - started,
        )
        return answers


def _drained(answers: Iterable[Answer]) -> Iterator[Answer]:
    """Takes the answers out of a list one by one, so that it holds none that was taken."""
    if not isinstance(answers, list):
        return iter(answers)
    answers.reverse()
    return map(list.pop, repeat(answers, len(answers)))


IterDataset = IterableDataset
