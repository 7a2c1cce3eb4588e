"""Options of datasets over shards: how samples are decoded, and what happens to those that cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from forebay_torch.fields import Fields
from forebay_torch.policy import stopped

__all__ = ["Decode", "OnError", "check_options", "decoded"]

Decode = Mapping[str, Callable[[Any], Any]] | Callable[[str, Fields], Any]
OnError = Literal["raise", "skip"] | Callable[[str, Exception], Any]


def check_options(owner: str, keys: str, on_error: Any) -> None:
    """Refuses what a dataset over shards does not do."""
    if keys not in ("webdataset", "basename"):
        raise ValueError(f'{owner}: keys is "webdataset" or "basename", not {keys!r}')
    if on_error not in ("raise", "skip") and not callable(on_error):
        raise ValueError(f'{owner}: on_error is "raise", "skip" or a function, not {on_error!r}')


def decoded(key: str, fields: Fields, decode: Decode | None) -> Any:
    """Returns a sample as ``decode`` makes it."""
    if decode is None:
        return fields
    part = ""
    try:
        if not isinstance(decode, Mapping):
            return decode(key, fields)
        for part in fields.keys() & decode.keys():
            fields[part] = decode[part](fields[part])
        return fields
    except StopIteration as error:
        of = f"{part!r} of " if part else ""
        raise stopped("decode", f"{of}the sample {key!r} of {fields.url}") from error
    except Exception as error:
        of = f"{part!r} of " if part else ""
        error.add_note(f"while decode worked on {of}the sample {key!r} of {fields.url}")
        raise
