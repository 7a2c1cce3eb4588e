"""How our datasets and loaders read: each function makes an epoch of one of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from feeding import samples
from feeding.reader import Counts, Epoch


def bucket_of(endpoint: str, bucket: str) -> Any:
    import forebay

    return forebay.Client(endpoint).bucket(bucket)


def loaded(
    dataset: Any, batch: int, workers: int, threads: int | None, shuffle: bool = False
) -> Any:
    """A DataLoader, or with `threads` a ThreadLoader."""
    from forebay_torch import ThreadLoader

    if threads is not None:
        return ThreadLoader(dataset, batch_size=batch, shuffle=shuffle, threads=threads)
    return samples.data_loader(dataset, batch, workers, shuffle)


def map_style(
    endpoint: str,
    bucket: str,
    batch: int,
    workers: int = 0,
    threads: int | None = None,
    decode: bool = False,
    zero_copy: bool = False,
) -> Epoch:
    """MapDataset, shuffled."""
    from forebay_torch import MapDataset

    dataset = MapDataset(
        bucket_of(endpoint, bucket),
        zero_copy=zero_copy or decode,
        data_format_fn=samples.decoded if decode else None,
        return_name=not decode,
    )
    loader = loaded(dataset, batch, workers, threads, shuffle=True)
    count = samples.of_tensors if decode else samples.of_pairs
    return lambda: count(loader)


def iterable(
    endpoint: str,
    bucket: str,
    batch: int,
    workers: int = 0,
    threads: int | None = None,
    shuffle: bool = False,
    zero_copy: bool = False,
) -> Epoch:
    """IterableDataset."""
    from forebay_torch import IterableDataset

    dataset = IterableDataset(
        bucket_of(endpoint, bucket), shuffle=shuffle, batch_size=batch, zero_copy=zero_copy
    )
    loader = loaded(dataset, batch, workers, threads)
    return lambda: samples.of_pairs(loader)


def batch_iterable(
    endpoint: str,
    bucket: str,
    batch: int,
    most: int = 256,
    workers: int = 0,
    threads: int | None = None,
) -> Epoch:
    """BatchIterDataset with requests of `most` objects."""
    from forebay_torch import BatchIterDataset

    dataset = BatchIterDataset(bucket_of(endpoint, bucket), max_batch_size=most, batch_size=batch)
    loader = loaded(dataset, batch, workers, threads)
    return lambda: samples.of_pairs(loader)


def by_batches(endpoint: str, bucket: str, most: int) -> Epoch:
    """BatchIterDataset without a loader: what there is without torch's share."""
    from forebay_torch import BatchIterDataset

    dataset = BatchIterDataset(bucket_of(endpoint, bucket), max_batch_size=most, streaming=False)
    return lambda: samples.of_stream(dataset)


def by_shards(endpoint: str, bucket: str) -> Epoch:
    """ShardReader without a loader."""
    from forebay_torch import ShardReader

    dataset = ShardReader(bucket_of(endpoint, bucket))
    return lambda: samples.of_stream((key, fields["bin"]) for key, fields in dataset)


def shards(
    endpoint: str,
    bucket: str,
    batch: int,
    workers: int = 0,
    threads: int | None = None,
    by_number: bool = False,
) -> Epoch:
    """ShardReader, or with `by_number` ShardMapDataset in shuffled order."""
    from forebay_torch import ShardMapDataset, ShardReader

    source = bucket_of(endpoint, bucket)
    if by_number:
        loader = loaded(ShardMapDataset(source), batch, workers, threads, shuffle=True)
    else:
        loader = loaded(ShardReader(source, batch_size=batch), batch, workers, threads)
    return lambda: samples.of_shards(loader)


def lines(
    endpoint: str, bucket: str, batch: int, workers: int = 0, threads: int | None = None
) -> Epoch:
    """Lines of texts, as the documentation of BaseIterDataset shows it."""
    from forebay_torch import BaseIterDataset

    class Lines(BaseIterDataset):
        def __iter__(self) -> Iterator[bytes]:
            self._reset_iterator()
            for text in self._get_worker_iter_info()[0]:
                yield from text.get().read_all().splitlines()

    loader = loaded(Lines(bucket_of(endpoint, bucket)), batch, workers, threads)
    return lambda: samples.of_contents(loader)


def piped_lines(endpoint: str, bucket: str, batch: int, workers: int = 0) -> Epoch:
    """Lines of texts by DataPipes."""
    lines = piped_objects(endpoint, bucket).readlines(return_path=False)
    loader = samples.data_loader(lines, batch, workers, False)
    return lambda: samples.of_contents(loader)


def piped_objects(endpoint: str, bucket: str) -> Any:
    """A DataPipe of names and streams of all objects of a bucket."""
    from forebay_torch.datapipes import IterableWrapper

    client = bucket_of(endpoint, bucket).client
    files = IterableWrapper([f"ais://{bucket}/"]).list_files_by_s3(client=client).sharding_filter()
    return files.load_files_by_s3(client=client)


def piped_shards(endpoint: str, bucket: str) -> Epoch:
    """Whole shards by DataPipes."""
    pipe = piped_objects(endpoint, bucket)

    def epoch() -> Iterator[Counts]:
        for _, stream in pipe:
            yield 1, len(stream.read())

    return epoch


def content_of(pair: tuple[str, Any]) -> bytes:
    """The content of a name with its stream."""
    content: bytes = pair[1].read()
    return content


def training(endpoint: str, bucket: str, batch: int, model: str) -> Epoch:
    """A model trained on what DataPipes read."""
    from feeding.models import MODELS, trained

    pipe = piped_objects(endpoint, bucket)
    if model == "bert":
        pipe = pipe.readlines(return_path=False)
    else:
        pipe = pipe.map(content_of)
    step, loader = MODELS[model](), samples.data_loader(pipe, batch)
    return lambda: trained(loader, step)


def listing(endpoint: str, bucket: str) -> Epoch:
    source = bucket_of(endpoint, bucket)

    def epoch() -> Iterator[Counts]:
        listed = source.list_snapshot()
        yield len(listed), listed.total_size

    return epoch


def sampler(endpoint: str, bucket: str, count: int, size: int, per_batch: int = 100) -> Epoch:
    """All batches of a DynamicBatchSampler over objects of `size` bytes."""
    from forebay import Listing
    from forebay_torch import DynamicBatchSampler

    class Source:
        objects = Listing.from_pairs((f"o{n:08}", size) for n in range(count))

    made = DynamicBatchSampler(Source(), per_batch * size, shuffle=True)
    return lambda: of_batches(made)


def of_batches(batches: Iterable[list[int]]) -> Iterator[Counts]:
    """A sampler's whole epoch as one piece."""
    yield sum(map(len, batches)), 0
