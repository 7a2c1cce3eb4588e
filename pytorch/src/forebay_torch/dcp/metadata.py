"""The ``.metadata`` of a distributed checkpoint, read without running what is in it.

torch writes it by pickle. Unpickling runs what the bytes name, so a writer of the bucket could
run code in every training that loads or replaces a checkpoint there. Here only the types that such
metadata consist of are made.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import pickle
from typing import IO, Any

import torch
from torch.distributed.checkpoint.metadata import Metadata

from forebay import InvalidArgument

__all__ = ["load_metadata"]

# Modules of torch of which all dataclasses and enums are data.
_DATA_MODULES = ("torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem")
_PLAIN = frozenset(
    [
        *((("builtins"), name) for name in ("set", "frozenset", "complex", "slice", "bytearray")),
        ("collections", "OrderedDict"),
        ("torch", "Size"),
        ("torch", "device"),
        ("torch.serialization", "_get_layout"),
        *(
            (module, name)
            for module in ("pathlib", "pathlib._local")
            for name in ("Path", "PosixPath", "PurePath", "PurePosixPath", "PureWindowsPath")
        ),
    ]
)


class _Unpickler(pickle.Unpickler):
    """Makes values, and objects of the types of metadata."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _PLAIN:
            return super().find_class(module, name)
        if module == "torch" and isinstance(found := getattr(torch, name, None), torch.dtype):
            return found
        if module in _DATA_MODULES and "." not in name:
            found = getattr(importlib.import_module(module), name, None)
            if isinstance(found, type) and found.__module__ == module:
                if dataclasses.is_dataclass(found) or issubclass(found, enum.Enum):
                    return found
        raise pickle.UnpicklingError(f"it names {module}.{name}, which is no part of metadata")


def load_metadata(file: IO[bytes], path: str) -> Metadata:
    """The metadata in a file.

    Args:
        path: Of the file, for messages.

    Raises:
        InvalidArgument: It is none, or it names anything but the types of metadata; nothing of it was
            run.
    """
    try:
        metadata = _Unpickler(file).load()
    except (pickle.UnpicklingError, EOFError, AttributeError, IndexError, TypeError, ValueError) as error:
        raise InvalidArgument(f"{path} is no metadata of a checkpoint: {error}") from None
    if not isinstance(metadata, Metadata):
        raise InvalidArgument(f"{path} is no metadata of a checkpoint: {type(metadata).__name__}")
    return metadata
