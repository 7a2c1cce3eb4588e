"""Lightning's checkpoints under Dataflux's names, in both forms that its releases had."""

from __future__ import annotations

from typing import Any

from forebay import Client
from forebay_torch.compat.dataflux.dataflux_mapstyle_dataset import cloud_uri, cluster_client
from forebay_torch.lightning import FSDPStrategy, LightningAsyncCheckpoint, LightningCheckpoint

__all__ = [
    "DatafluxFSDPStrategy",
    "DatafluxLightningAsyncCheckpoint",
    "DatafluxLightningCheckpoint",
]


class _EitherForm:
    """A class whose constructor takes the arguments of Dataflux's earlier and later releases."""

    def __init__(
        self,
        project_name: str,
        *arguments: Any,
        disable_multipart: bool = False,
        **named: Any,
    ) -> None:
        given = _both_forms(type(self).__name__, arguments, named)
        super().__init__(project_name, **given)  # type: ignore[call-arg]


class DatafluxLightningCheckpoint(_EitherForm, LightningCheckpoint):  # type: ignore[misc,unused-ignore]
    """A plugin for ``Trainer(plugins=[...])``.

    Args:
        project_name: Accepted for compatibility, unused.
        arguments: ``storage_client``, as in later releases, or ``bucket_name, storage_client``, as
            in earlier ones; by position or by name. A bucket without a scheme is one of Google
            Cloud Storage. A client other than a ``forebay.Client`` is left unused, with a warning.
        disable_multipart: Accepted for compatibility, unused: parts cost no memory here.
    """


class DatafluxLightningAsyncCheckpoint(  # type: ignore[misc,unused-ignore]
    _EitherForm, LightningAsyncCheckpoint
):
    """The same in the background; arguments as for DatafluxLightningCheckpoint."""


class DatafluxFSDPStrategy(FSDPStrategy):  # type: ignore[misc,unused-ignore]
    """The strategy of Dataflux's demos; arguments as for FSDPStrategy."""

    def __init__(
        self, project_name: str, storage_client: Any = None, use_async: bool = False, **options: Any
    ) -> None:
        super().__init__(project_name, cluster_client(storage_client), use_async, **options)


def _both_forms(owner: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """Bucket and client, from whichever of the two forms was used."""
    earlier = bool(arguments) and isinstance(arguments[0], str)
    names = ["bucket_name", "storage_client"] if earlier else ["storage_client", "disable_multipart"]
    if len(arguments) > len(names):
        raise TypeError(f"{owner} takes at most {len(names) + 1} arguments by position")
    given = dict(zip(names, arguments, strict=False))
    for name, value in named.items():
        if name in given or name not in ("bucket_name", "storage_client"):
            raise TypeError(f"{owner} got an argument {name!r} that it does not take, or twice")
        given[name] = value
    bucket, client = given.get("bucket_name"), given.get("storage_client")
    own: Client | None = cluster_client(client)
    return {"bucket_name": bucket and cloud_uri(bucket), "storage_client": own}
