"""How the peers read, each by its own client: a function for every kind of dataset."""

from __future__ import annotations

import io
import logging
import os
import tarfile
from collections.abc import Callable, Iterator
from typing import Any

from feeding import samples
from feeding.reader import Counts, Epoch
from peers import MINIO_PASSWORD, MINIO_USER

REGION = "us-east-1"


# AIStore, by its own SDK


def aistore_bucket(endpoint: str, bucket: str) -> Any:
    from aistore.sdk import Client

    return Client(endpoint).bucket(bucket)


def aistore_map(
    endpoint: str, bucket: str, batch: int, workers: int = 0, decode: bool = False,
    get_batch: bool = False,
) -> Epoch:  # fmt: skip
    """AISMapDataset; with `get_batch` one GetBatch for each batch, as a user would write it."""
    from aistore.pytorch import AISBaseMapDataset, AISMapDataset
    from aistore.sdk import Client

    client = Client(endpoint)

    class Batched(AISBaseMapDataset):
        def __len__(self) -> int:
            return len(self._obj_list)

        def __getitem__(self, index: int) -> Any:
            return self.__getitems__([index])[0]

        def __getitems__(self, indices: list[int]) -> list[Any]:
            wanted = client.batch(objects=[self._obj_list[index] for index in indices])
            return [(info.obj_name, content) for info, content in wanted.get()]

    class Decoded(AISMapDataset):
        def __getitem__(self, index: int) -> Any:
            return samples.decoded(super().__getitem__(index)[1])

    made = Decoded if decode else Batched if get_batch else AISMapDataset
    loader = samples.data_loader(made(client.bucket(bucket)), batch, workers, shuffle=True)
    count = samples.of_tensors if decode else samples.of_pairs
    return lambda: count(loader)


def aistore_iterable(endpoint: str, bucket: str, batch: int, workers: int = 0) -> Epoch:
    from aistore.pytorch import AISIterDataset

    loader = samples.data_loader(AISIterDataset(aistore_bucket(endpoint, bucket)), batch, workers)
    return lambda: samples.of_pairs(loader)


def aistore_batches(
    endpoint: str, bucket: str, batch: int, most: int = 256, workers: int = 0
) -> Epoch:
    """AISBatchIterDataset."""
    from aistore.pytorch.batch_iter_dataset import AISBatchIterDataset
    from aistore.sdk import Client

    client = Client(endpoint)
    dataset = AISBatchIterDataset(client.bucket(bucket), client, max_batch_size=most)
    loader = samples.data_loader(dataset, batch, workers)
    return lambda: samples.of_pairs(loader)


def aistore_shards(endpoint: str, bucket: str, batch: int, workers: int = 0) -> Epoch:
    from aistore.pytorch import AISShardReader

    loader = samples.data_loader(AISShardReader(aistore_bucket(endpoint, bucket)), batch, workers)
    return lambda: samples.of_shards(loader)


def aistore_lines(endpoint: str, bucket: str, batch: int) -> Epoch:
    from aistore.pytorch import AISBaseIterDataset

    class Lines(AISBaseIterDataset):
        def __iter__(self) -> Iterator[bytes]:
            self._reset_iterator()
            for text in self._get_worker_iter_info()[0]:
                yield from text.get_reader().read_all().splitlines()

    loader = samples.data_loader(Lines(aistore_bucket(endpoint, bucket)), batch)
    return lambda: samples.of_contents(loader)


def aistore_listing(endpoint: str, bucket: str) -> Epoch:
    source = aistore_bucket(endpoint, bucket)

    def epoch() -> Iterator[Counts]:
        yield len(source.list_all_objects(props="name,size")), 0

    return epoch


def aistore_sampler(
    endpoint: str, bucket: str, count: int, size: int, per_batch: int = 100
) -> Epoch:
    """Its DynamicBatchSampler over objects whose sizes are known already."""
    from types import SimpleNamespace

    from aistore.pytorch import DynamicBatchSampler

    # A batch ends before its limit there, so its limit is one more.
    props = SimpleNamespace(size=size)
    objects = [SimpleNamespace(name=f"o{n:08}", props_cached=props) for n in range(count)]
    source = SimpleNamespace(get_obj_list=lambda: objects)
    made = DynamicBatchSampler(source, per_batch * size + 1, shuffle=True)

    def epoch() -> Iterator[Counts]:
        yield sum(map(len, made)), 0

    return epoch


# S3, on MinIO


def with_name(reader: Any) -> tuple[str, bytes]:
    return reader.key, reader.read()


def as_tensor(reader: Any) -> Any:
    return samples.decoded(reader.read())


def as_shard(reader: Any) -> bytes:
    return reader.read()


def s3torch_options(endpoint: str, bucket: str) -> dict[str, Any]:
    from s3torchconnector import S3ClientConfig

    # It always signs; the bench's MinIO knows this login.
    os.environ["AWS_ACCESS_KEY_ID"] = MINIO_USER
    os.environ["AWS_SECRET_ACCESS_KEY"] = MINIO_PASSWORD
    config = S3ClientConfig(force_path_style=True)
    return {
        "s3_uri": f"s3://{bucket}/", "region": REGION, "endpoint": endpoint,
        "s3client_config": config,
    }  # fmt: skip


def s3torch_map(
    endpoint: str,
    bucket: str,
    batch: int,
    workers: int = 0,
    decode: bool = False,
    collate: Callable[[list[Any]], Any] | None = None,
) -> Epoch:
    from s3torchconnector import S3MapDataset

    transform = as_tensor if decode else with_name
    dataset = S3MapDataset.from_prefix(transform=transform, **s3torch_options(endpoint, bucket))
    loader = samples.data_loader(dataset, batch, workers, shuffle=True, collate=collate)
    count = samples.of_tensors if decode else samples.of_pairs
    return lambda: count(loader)


def s3torch_iterable(endpoint: str, bucket: str, batch: int, workers: int = 0) -> Epoch:
    from s3torchconnector import S3IterableDataset

    dataset = S3IterableDataset.from_prefix(
        transform=with_name, enable_sharding=True, **s3torch_options(endpoint, bucket)
    )
    loader = samples.data_loader(dataset, batch, workers)
    return lambda: samples.of_pairs(loader)


def s3torch_shards(endpoint: str, bucket: str, batch: int, workers: int = 0) -> Epoch:
    """Shards as whole objects, unpacked by Python's tarfile: it has no reader of shards."""
    from s3torchconnector import S3IterableDataset
    from torch.utils.data import IterableDataset

    source = S3IterableDataset.from_prefix(
        transform=as_shard, enable_sharding=True, **s3torch_options(endpoint, bucket)
    )

    class Samples(IterableDataset[Any]):
        def __iter__(self) -> Iterator[tuple[str, dict[str, bytes]]]:
            for content in source:
                with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                    for member in archive:
                        key, _, extension = member.name.partition(".")
                        yield key, {extension: archive.extractfile(member).read()}

    loader = samples.data_loader(Samples(), batch, workers)
    return lambda: samples.of_shards(loader)


def s3torch_lines(endpoint: str, bucket: str, batch: int, workers: int = 0) -> Epoch:
    from s3torchconnector import S3IterableDataset
    from torch.utils.data import IterableDataset

    source = S3IterableDataset.from_prefix(
        transform=as_shard, enable_sharding=True, **s3torch_options(endpoint, bucket)
    )

    class Lines(IterableDataset[Any]):
        def __iter__(self) -> Iterator[bytes]:
            for content in source:
                yield from content.splitlines()

    loader = samples.data_loader(Lines(), batch, workers)
    return lambda: samples.of_contents(loader)


def s3fs_at(endpoint: str) -> Any:
    import s3fs

    # Without a cache of listings, which would keep what was listed before.
    return s3fs.S3FileSystem(
        anon=True, endpoint_url=endpoint, use_listings_cache=False, skip_instance_cache=True
    )


def s3fs_map(
    endpoint: str, bucket: str, batch: int, workers: int = 0, decode: bool = False
) -> Epoch:
    """A dataset as users of fsspec write it; its `cat` gets a batch side by side."""
    from torch.utils.data import Dataset

    files = s3fs_at(endpoint)
    names = files.find(bucket)

    class Files(Dataset[Any]):
        def __len__(self) -> int:
            return len(names)

        def __getitems__(self, indices: list[int]) -> list[Any]:
            wanted = [names[index] for index in indices]
            contents = files.cat(wanted)
            if decode:
                return [samples.decoded(contents[name]) for name in wanted]
            return [(name, contents[name]) for name in wanted]

    loader = samples.data_loader(Files(), batch, workers, shuffle=True)
    count = samples.of_tensors if decode else samples.of_pairs
    return lambda: count(loader)


def s3fs_iterable(endpoint: str, bucket: str, batch: int) -> Epoch:
    from torch.utils.data import IterableDataset

    files = s3fs_at(endpoint)
    names = files.find(bucket)

    class Files(IterableDataset[Any]):
        def __iter__(self) -> Iterator[tuple[str, bytes]]:
            for name in names:
                yield name, files.cat_file(name)

    loader = samples.data_loader(Files(), batch)
    return lambda: samples.of_pairs(loader)


def s3fs_lines(endpoint: str, bucket: str, batch: int, workers: int = 0) -> Epoch:
    from torch.utils.data import IterableDataset, get_worker_info

    # Each process has a client of its own: threads of a client do not outlive a fork.
    clients = {os.getpid(): s3fs_at(endpoint)}
    names = clients[os.getpid()].find(bucket)

    class Lines(IterableDataset[Any]):
        def __iter__(self) -> Iterator[bytes]:
            if os.getpid() not in clients:
                clients[os.getpid()] = s3fs_at(endpoint)
            files, info = clients[os.getpid()], get_worker_info()
            for name in names[info.id :: info.num_workers] if info else names:
                with files.open(name, "rb") as opened:
                    for line in opened:
                        yield line[:-1]

    loader = samples.data_loader(Lines(), batch, workers)
    return lambda: samples.of_contents(loader)


def s3fs_listing(endpoint: str, bucket: str) -> Epoch:
    files = s3fs_at(endpoint)

    def epoch() -> Iterator[Counts]:
        yield len(files.find(bucket, detail=True)), 0

    return epoch


def s3torch_listing(endpoint: str, bucket: str) -> Epoch:
    from s3torchconnector import S3MapDataset

    def epoch() -> Iterator[Counts]:
        yield len(S3MapDataset.from_prefix(**s3torch_options(endpoint, bucket))), 0

    return epoch


# plain HTTP, in one session of one thread


def http(endpoint: str, bucket: str, count: int, path: str = "/{bucket}/{name}") -> Epoch:
    import requests

    from feeding.data import object_name

    session = requests.Session()
    url = endpoint + path.replace("{bucket}", bucket)

    def epoch() -> Iterator[Counts]:
        for number in range(count):
            answer = session.get(url.replace("{name}", object_name(number)))
            answer.raise_for_status()
            yield 1, len(answer.content)

    return epoch


# Google Cloud Storage, on fake-gcs-server


def dataflux(
    endpoint: str, bucket: str, batch: int, iterable: bool = False, compose: bool = True,
    workers: int = 0, decode: bool = False,
) -> Epoch:  # fmt: skip
    """Dataflux's datasets; without `compose` its direct calls, one for each object."""
    os.environ["STORAGE_EMULATOR_HOST"] = endpoint
    logging.disable(logging.WARNING)
    from dataflux_pytorch import dataflux_iterable_dataset, dataflux_mapstyle_dataset

    module = dataflux_iterable_dataset if iterable else dataflux_mapstyle_dataset
    # It asks first whether it may write composed objects; fake-gcs-server has no such request.
    module._get_missing_permissions = lambda **_: []
    # A single process lists: others would each make a client of their own for some names.
    config = module.Config(disable_compose=not compose, num_processes=1)
    make = module.DataFluxIterableDataset if iterable else module.DataFluxMapStyleDataset
    more = {"data_format_fn": samples.decoded} if decode else {}
    dataset = make("bench", bucket, config, **more)
    loader = samples.data_loader(dataset, batch, workers, shuffle=not iterable)
    count = samples.of_tensors if decode else samples.of_contents
    return lambda: count(loader)


def dataflux_listing(endpoint: str, bucket: str) -> Epoch:
    os.environ["STORAGE_EMULATOR_HOST"] = endpoint
    from dataflux_core.fast_list import ListingController

    def epoch() -> Iterator[Counts]:
        yield len(ListingController(2, "bench", bucket).run()), 0

    return epoch


# local files


def webdataset(endpoint: str, bucket: str, batch: int, workers: int = 0) -> Epoch:
    """webdataset over shards that are files; `bucket` is their folder."""
    from pathlib import Path

    import webdataset

    files = sorted(str(path) for path in Path(bucket).glob("*.tar"))
    dataset = webdataset.WebDataset(files, shardshuffle=False).to_tuple("__key__", "bin")
    loader = samples.data_loader(dataset, batch, workers)
    return lambda: samples.of_pairs(loader)
