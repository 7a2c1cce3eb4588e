"""The names of ``aistore.pytorch``, and of what its users import beside it.

    from forebay_torch.compat.aistore import AISIterDataset, Client

Sources may also be buckets and groups of AIStore's own SDK, connected to a Forebay gateway: they
are read through the cluster that they name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from forebay import Bucket, Client, ObjectGroup
from forebay_torch.base_iter_dataset import BaseIterDataset
from forebay_torch.base_map_dataset import BaseMapDataset
from forebay_torch.batch_iter_dataset import BatchIterDataset
from forebay_torch.iter_dataset import IterableDataset
from forebay_torch.map_dataset import MapDataset
from forebay_torch.multi_shard_stream import DataShard, MultiShardStream
from forebay_torch.parallel_map_dataset import ParallelMapDataset
from forebay_torch.sampler import DynamicBatchSampler
from forebay_torch.shard_reader import ShardReader

__all__ = [
    "AISBaseIterDataset",
    "AISBaseMapDataset",
    "AISBatchIterDataset",
    "AISIterDataset",
    "AISMapDataset",
    "AISMultiShardStream",
    "AISParallelMapDataset",
    "AISShardReader",
    "Bucket",
    "Client",
    "DataShard",
    "DynamicBatchSampler",
    "ObjectGroup",
]


class AISBaseMapDataset(BaseMapDataset):
    """BaseMapDataset with the arguments of AIStore's."""

    def __init__(self, ais_source_list: Any, prefix_map: Any = None, **options: Any) -> None:
        super().__init__(*_sources(ais_source_list, prefix_map), **options)


class AISMapDataset(MapDataset):
    """MapDataset with the arguments of AIStore's: samples are ``(name, content)``."""

    def __init__(
        self,
        ais_source_list: Any = None,
        prefix_map: Any = None,
        etl_name: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*_sources(ais_source_list, prefix_map), etl_name, **options)


class AISParallelMapDataset(ParallelMapDataset):
    """ParallelMapDataset with the arguments of AIStore's: samples are ``(name, buffer)``."""

    def __init__(
        self,
        ais_source_list: Any = None,
        prefix_map: Any = None,
        num_workers: int = 16,
        **options: Any,
    ) -> None:
        super().__init__(*_sources(ais_source_list, prefix_map), num_workers, **options)


class AISBaseIterDataset(BaseIterDataset):
    """BaseIterDataset with the arguments of AIStore's."""

    def __init__(
        self,
        ais_source_list: Any,
        prefix_map: Any = None,
        partition_sources_by_worker: bool = False,
        **options: Any,
    ) -> None:
        sources = _sources(ais_source_list, prefix_map)
        super().__init__(*sources, partition_sources_by_worker, **options)


class AISIterDataset(IterableDataset):
    """IterableDataset with the arguments of AIStore's: samples are ``(name, content)``."""

    def __init__(
        self,
        ais_source_list: Any,
        prefix_map: Any = None,
        etl_name: str | None = None,
        show_progress: bool = False,
        partition_sources_by_worker: bool = False,
        **options: Any,
    ) -> None:
        sources = _sources(ais_source_list, prefix_map)
        super().__init__(
            *sources,
            partition_sources_by_worker,
            etl_name=etl_name,
            show_progress=show_progress,
            **options,
        )


class AISBatchIterDataset(BatchIterDataset):
    """BatchIterDataset with the arguments of AIStore's; a missing object is an error by default."""

    def __init__(
        self, ais_source_list: Any, client: Any = None, prefix_map: Any = None, *args: Any, **options: Any
    ) -> None:
        if isinstance(client, Mapping):
            raise TypeError(
                f"{type(self).__name__}: the second argument is the client, as in AIStore's class, "
                f"not {client!r}; give prefix_map by name"
            )
        sources, prefixes = _sources(ais_source_list, prefix_map)
        own = client if client is None or isinstance(client, Client) else _client(client)
        super().__init__(sources, prefixes, own, *args, **options)


class AISShardReader(ShardReader):
    """ShardReader with the arguments and the keys of AIStore's: a sample's key is its basename."""

    def __init__(
        self,
        bucket_list: Any,
        prefix_map: Any = None,
        etl_name: str | None = None,
        show_progress: bool = False,
        partition_sources_by_worker: bool = False,
        **options: Any,
    ) -> None:
        options = {"keys": "basename", **options}
        sources = _sources(bucket_list, prefix_map)
        super().__init__(
            *sources, etl_name, show_progress, partition_sources_by_worker, **options
        )


class AISMultiShardStream(MultiShardStream):
    """MultiShardStream over shards of either SDK."""

    def __init__(self, data_sources: Sequence[Any], **options: Any) -> None:
        own = [
            DataShard(_source(shard.bucket), shard.prefix or "", shard.etl_name or None)
            for shard in data_sources
        ]
        super().__init__(own, **options)


def _sources(given: Any, prefix_map: Any) -> tuple[Any, Any]:
    """Sources and prefixes, each source as one of ours."""
    if prefix_map is not None and not isinstance(prefix_map, Mapping):
        raise TypeError(
            "the second argument is prefix_map, source -> prefixes, such as "
            f'{{bucket: "train/"}}, not {prefix_map!r}; give other arguments by name'
        )
    chosen = list(given) if isinstance(given, list | tuple) else given
    if isinstance(chosen, list):
        chosen = [_source(source) for source in chosen]
    elif chosen is not None:
        chosen = _source(chosen)
    return chosen, {_source(source): prefixes for source, prefixes in (prefix_map or {}).items()}


def _source(source: Any) -> Any:
    """The bucket or group as one of ours."""
    if not type(source).__module__.startswith("aistore."):
        return source
    names: Iterable[str] | None = None
    if hasattr(source, "list_names"):
        names, source = source.list_names(), source.bck
    provider = getattr(source.provider, "value", source.provider)
    bucket = _client(source.client).bucket(source.name, str(provider))
    return bucket if names is None else bucket.objects(names=names)


def _client(client: Any) -> Client:
    """A client with the gateway, the token and the CA that a client of AIStore's SDK has."""
    # aistore.sdk.Client holds the RequestClient that its buckets have.
    requests = getattr(client, "_request_client", client)
    sessions = getattr(requests, "session_manager", None)
    return Client(
        str(requests.base_url).removesuffix("/").removesuffix("/v1"),
        ca_file=getattr(sessions, "ca_cert", None),
        token=getattr(requests, "token", None) or None,
    )
