"""Functions that all readers share: they batch, decode and count samples."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any

from feeding.reader import Counts, marked


def data_loader(
    dataset: Any,
    batch: int,
    workers: int = 0,
    shuffle: bool = False,
    collate: Callable[[list[Any]], Any] | None = None,
) -> Any:
    """torch's own loader; its workers live on from one epoch to the next."""
    from torch.utils.data import DataLoader

    return DataLoader(
        dataset,
        batch_size=batch,
        shuffle=shuffle,
        num_workers=workers,
        collate_fn=collate,
        persistent_workers=workers > 0,
    )


def shared(pairs: list[tuple[str, bytes]]) -> tuple[list[str], list[Any]]:
    """Names, and contents as tensors of bytes, which workers hand over in shared memory.

    Workers send `bytes` through a pipe, which the training process has to read between two steps.
    """
    import torch

    # The tensors are read alone, so that they may lie on memory of `bytes`.
    warnings.filterwarnings("ignore", message="The given buffer is not writable")
    names, contents = zip(*pairs, strict=True)
    return list(names), [torch.frombuffer(content, dtype=torch.uint8) for content in contents]


@marked
def decoded(content: Any) -> Any:
    """A JPEG as a tensor of shape (3, height, width), uint8."""
    import torch
    from PIL import Image

    with Image.open(io.BytesIO(content)) as opened:
        image = opened.convert("RGB")
    flat = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    return flat.reshape(image.height, image.width, 3).permute(2, 0, 1).contiguous()


def of_contents(batches: Iterable[Any]) -> Iterator[Counts]:
    """Of batches that are contents."""
    for contents in batches:
        counts = len(contents), sum(map(len, contents))
        del contents  # a loop is done with a batch before it asks for the next
        yield counts


def of_pairs(batches: Iterable[Any]) -> Iterator[Counts]:
    """Of batches that are names and contents."""
    return of_contents(map(itemgetter(1), batches))


def of_shards(batches: Iterable[Any]) -> Iterator[Counts]:
    """Of batches that are keys and parts by extension."""
    return of_contents(batch[1]["bin"] for batch in batches)


def of_tensors(batches: Iterable[Any]) -> Iterator[Counts]:
    """Of batches that are tensors."""
    for batch in batches:
        counts = len(batch), batch.nbytes
        del batch
        yield counts


def of_stream(pairs: Iterable[tuple[Any, Any]], at_a_time: int = 1000) -> Iterator[Counts]:
    """Of samples that come one by one, counted by the thousand."""
    count = size = 0
    for _, content in pairs:
        count, size = count + 1, size + len(content)
        if count == at_a_time:
            yield count, size
            count = size = 0
    if count:
        yield count, size
