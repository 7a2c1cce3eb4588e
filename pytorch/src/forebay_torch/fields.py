"""The parts of a sample by extension, in a form that batches although samples have different parts.

The default collation of a DataLoader takes the keys of the first sample of a batch and wants them
in every other. Torch lets a type bring its own way instead, which is registered here.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence
from itertools import chain
from multiprocessing.reduction import ForkingPickler
from typing import Any

from torch.utils.data._utils.collate import collate, default_collate_fn_map

__all__ = ["Fields"]


class _Extension(str):
    """An extension with ``fill``, ``key`` and ``url`` of the Fields that it is of."""

    __slots__ = ("of",)

    of: tuple[Any, Any, Any]

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)


class _Items(ItemsView[str, Any]):
    """The parts of Fields, by extensions that have the rest of the Fields with them.

    Frameworks that move a batch to a device make another of the same class, of what is in this view.
    """

    __slots__ = ()

    _mapping: Fields

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        fields = self._mapping
        of = (fields.fill, fields.key, fields.url)
        for name, content in dict.items(fields):
            extension = _Extension(name)
            extension.of = of
            yield extension, content


class Fields(dict[str, Any]):
    """``{extension: content}`` of a sample, or of a batch of them after collation.

    Reading an extension that the sample does not have gives ``fill`` (for a batch: a list of it)
    without adding it; with ``fill=None`` it is a KeyError. ``fields["__key__"]`` and
    ``fields["__url__"]`` are the sample's key and the URI of its shard, which iteration over the
    parts leaves out. ``Fields({name: f(part) for name, part in fields.items()})``, by which
    frameworks move batches to devices, has the key, the URI and ``fill`` of ``fields``.

    Attributes:
        fill: Stands for a part that is not there.
        key: The sample's key; of a batch, all of them.
        url: The shard it is from; of a batch, all of them.
    """

    __slots__ = ("fill", "key", "url")

    def __init__(
        self,
        parts: Mapping[str, Any] | None = None,
        fill: Any = b"",
        key: Any = "",
        url: Any = "",
    ) -> None:
        # Made for every sample: what `super` looks up costs as much as the rest.
        dict.__init__(self, parts or {})
        if not key and not url and type(name := next(iter(self), None)) is _Extension:
            plain = {str(name): part for name, part in dict.items(self)}
            self.clear()
            self.update(plain)
            like, key, url = name.of
            fill = like if fill == b"" else fill
        self.fill = fill
        # Texts; lists of them for a batch.
        self.key = key
        self.url = url

    def __missing__(self, name: str) -> Any:
        if name == "__key__":
            return self.key
        if name == "__url__":
            return self.url
        if self.fill is None:
            raise KeyError(name)
        return self.fill

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        """The parts, each with its extension."""
        return _Items(self)

    def copy(self) -> Fields:
        """A shallow copy."""
        return Fields(self, self.fill, self.key, self.url)

    __copy__ = copy

    def __reduce__(self) -> tuple[Any, ...]:
        return Fields, (dict(self), self.fill, self.key, self.url)


def _collate_fields(
    batch: Sequence[Fields],
    *,
    collate_fn_map: dict[type | tuple[type, ...], Callable[..., Any]] | None = None,
) -> Fields:
    """The batch of samples as one: every extension that any of them has."""
    names = dict.fromkeys(chain.from_iterable(batch))
    short = [fields for fields in batch if len(fields) < len(names) and fields.fill is None]
    for name in names if short else ():
        for fields in short:
            if name not in fields:
                raise KeyError(
                    f"sample {fields.key!r} of {fields.url} has no {name!r}, others of its batch "
                    "do; give fill_missing, or a collate_fn of your own"
                )
    parts = {
        name: collate([fields[name] for fields in batch], collate_fn_map=collate_fn_map)
        for name in names
    }
    first = batch[0].fill
    fill = None if first is None else [first] * len(batch)
    return Fields(
        parts, fill, [fields.key for fields in batch], [fields.url for fields in batch]
    )


default_collate_fn_map[Fields] = _collate_fields


def _collate_views(
    batch: Sequence[Any],
    *,
    collate_fn_map: dict[type | tuple[type, ...], Callable[..., Any]] | None = None,
) -> Sequence[Any]:
    """Contents in buffers stay as they are, as ``bytes`` do: torch would take each for a
    sequence of numbers, and batch them byte by byte."""
    return batch


default_collate_fn_map[memoryview] = _collate_views
default_collate_fn_map[bytearray] = _collate_views


def _rebuild_view(content: bytes) -> memoryview:
    return memoryview(content)


def _reduce_view(view: memoryview) -> tuple[Callable[[bytes], memoryview], tuple[bytes]]:
    """A content without a copy that a worker process hands over: copied after all. A content that cannot be
    pickled there is lost in a thread of the queue, and the loop waits for it for ever."""
    return _rebuild_view, (bytes(view),)


ForkingPickler.register(memoryview, _reduce_view)
