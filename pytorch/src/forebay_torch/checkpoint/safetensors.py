"""Files of the safetensors format in the cluster: written as they are made, read by ranges."""

from __future__ import annotations

import ctypes
import json
import math
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from forebay import InvalidArgument, Object, ObjectProps, Writer
from forebay_torch.checkpoint.checkpoint import Checkpoint
from forebay_torch.checkpoint.location import StrPath
from forebay_torch.checkpoint.ranges import coalesced
from forebay_torch.checkpoint.tensor_slice import Span, TensorSlice

__all__ = ["TensorFile", "save_tensors"]

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "C64": torch.complex64,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
# Most models' headers are in the first bytes.
_FIRST_BYTES = 64 << 10
# Limit of the format's own library.
_MAX_HEADER_BYTES = 100_000_000
_DIRECT_READ_MIN_BYTES = 4 << 20


def save_tensors(
    checkpoint: Checkpoint,
    tensors: Mapping[str, torch.Tensor],
    path: StrPath,
    metadata: Mapping[str, str] | None = None,
) -> str:
    """Saves tensors as a safetensors file; returns its URI. It is there whole, or not at all.

    One tensor after the other goes out: memory holds the parts on their way, and a copy of a tensor
    that is not contiguous or not on the CPU.

    Args:
        checkpoint: Where, and in which parts.
        tensors: By name; each is written in full, those that share memory too.
        metadata: Texts to be kept in the header.

    Raises:
        TypeError: A tensor is of a type that the format does not have, or metadata are no texts.
    """
    header: dict[str, Any] = {}
    if metadata:
        if not all(isinstance(text, str) for pair in metadata.items() for text in pair):
            raise TypeError("metadata of a safetensors file are texts by texts")
        header["__metadata__"] = dict(metadata)
    at = 0
    # Large types first, so that each tensor is aligned to its own.
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    for name in order:
        tensor = tensors[name]
        if tensor.dtype not in _NAMES or tensor.layout is not torch.strided:
            raise TypeError(f"{name!r} is {tensor.dtype}, {tensor.layout}: not in safetensors")
        end = at + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [at, end],
        }
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with checkpoint.writer(path) as writer:
        writer.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            _write(writer, tensors[name])
    return checkpoint.uri(path)


class TensorFile(Mapping[str, torch.Tensor]):
    """The tensors of a safetensors file by their names; each is read when it is asked for.

    Only the ranges of what is asked for are read, neighbours as one request, and all of one version of
    the file.

    Args:
        checkpoint: How it is read.
        path: The file.

    Raises:
        forebay.NotFound: It is not there.
        forebay.InvalidArgument: It is no safetensors file, or its header is damaged.
        forebay.ObjectChanged: It was replaced; at a read, too.

    Example:
        >>> weights = TensorFile(Checkpoint(), "s3://models/llama.safetensors")
        >>> weights["lm_head.weight"]
        >>> layer = weights.get_many(name for name in weights if name.startswith("layers.0."))
    """

    def __init__(self, checkpoint: Checkpoint, path: StrPath) -> None:
        self._item: Object = checkpoint.object(path)
        self._concurrency = checkpoint.concurrency
        self._props: ObjectProps = self._item.head()
        size = self._props.size
        start, header = _header(self._item, self._props)
        self._start = start
        self.metadata: dict[str, str] = dict(header.pop("__metadata__", {}))
        self._entries = {name: _entry(self._item, name, header[name], size - start) for name in header}

    def get_many(
        self, names: Iterable[str] | None = None, device: Any = "cpu"
    ) -> dict[str, torch.Tensor]:
        """Several tensors, by default all, in few requests.

        Args:
            device: Where they are to be.

        Raises:
            KeyError: There is no tensor of such a name.
            forebay.ForebayError: They cannot be read.
        """
        wanted = list(self._entries if names is None else names)
        entries = [self._entries[name] for name in wanted]
        found = {}
        bytes_of = self._read([place for _, _, place in entries])
        for name, (dtype, shape, _), flat in zip(wanted, entries, bytes_of, strict=True):
            if flat.data_ptr() % dtype.itemsize:
                flat = flat.clone()
            found[name] = flat.view(dtype).reshape(shape).to(device)
        return found

    def get_slice(self, name: str) -> TensorSlice:
        """A tensor of which only the rows that are asked for are read.

        Example:
            >>> embeddings = weights.get_slice("model.embed_tokens.weight")
            >>> embeddings[1000:2000].shape
            torch.Size([1000, 4096])

        Raises:
            KeyError: There is no tensor of this name.
        """
        dtype, shape, (start, _) = self._entries[name]
        return TensorSlice(dtype, shape, start, self._read)

    def _read(self, spans: Sequence[Span]) -> list[torch.Tensor]:
        """The bytes of spans behind the header, read by few ranges, into the memory of which they are
        views."""
        ranges = coalesced((start, end - start) for start, end in spans)
        starts = [start for start, _ in ranges]
        memories = [bytearray(end - start) for start, end in ranges]
        num_workers = max(1, self._concurrency // 2)

        def receive(numbers: list[int]) -> None:
            there = [(self._start + start, self._start + end) for start, end in ranges]
            with self._item.get_range_reader(
                num_workers=num_workers, props=self._props, ranges=[there[n] for n in numbers]
            ) as file:
                for n in numbers:
                    file.seek(there[n][0])
                    file.readinto(memories[n])

        # Small ones by one reader, which fetches ahead; large ones go straight into their memory.
        large = [n for n, memory in enumerate(memories) if len(memory) >= _DIRECT_READ_MIN_BYTES]
        small = [n for n, memory in enumerate(memories) if len(memory) < _DIRECT_READ_MIN_BYTES]
        parts = [[n] for n in large] + ([small] if small else [])
        if parts:
            with ThreadPoolExecutor(min(2, len(parts))) as pool:
                list(pool.map(receive, parts))
        found = []
        for start, end in spans:
            if start == end:
                found.append(torch.empty(0, dtype=torch.uint8))
                continue
            number = bisect_right(starts, start) - 1
            found.append(
                torch.frombuffer(
                    memories[number],
                    dtype=torch.uint8,
                    count=end - start,
                    offset=start - starts[number],
                )
            )
        return found

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor; nothing is read."""
        return self._entries[name][1]

    def dtype(self, name: str) -> torch.dtype:
        """The type of a tensor's elements; nothing is read."""
        return self._entries[name][0]

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.get_many([name])[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries


def _write(writer: Writer, tensor: torch.Tensor) -> None:
    """Writes the elements in order."""
    flat = tensor.detach().to("cpu").contiguous().reshape(-1)
    size = flat.numel() * flat.element_size()
    if size:
        # Tensors know no buffers, numpy does not know all their types, and need not be there.
        memory = (ctypes.c_ubyte * size).from_address(flat.data_ptr())
        writer.write(memoryview(memory).cast("B"))


def _header(item: Object, props: ObjectProps) -> tuple[int, dict[str, Any]]:
    """Returns the offset of the first tensor, and the header of the file."""

    def damaged(why: str) -> InvalidArgument:
        return InvalidArgument(f"{item.uri} is no safetensors file: {why}")

    if props.size < 8:
        raise damaged(f"it has {props.size} bytes")
    with item.get_range_reader(props=props, ranges=[(0, min(_FIRST_BYTES, props.size))]) as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > min(props.size - 8, _MAX_HEADER_BYTES):
            raise damaged(f"its header would have {length} bytes")
        text = file.read(length)
    try:
        header = json.loads(text)
    except ValueError as error:
        raise damaged(f"its header is no JSON: {error}") from None
    if not isinstance(header, dict):
        raise damaged("its header is no object")
    return 8 + length, header


def _entry(
    item: Object, name: str, entry: Any, size: int
) -> tuple[torch.dtype, tuple[int, ...], tuple[int, int]]:
    """Type, shape and place of a tensor, if they go together."""
    try:
        dtype, shape = _DTYPES[entry["dtype"]], tuple(int(n) for n in entry["shape"])
        start, end = (int(n) for n in entry["data_offsets"])
        whole = 0 <= start <= end <= size and min(shape, default=0) >= 0
        if not whole or end - start != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{entry} does not fit")
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgument(f"{item.uri}: the tensor {name!r} is damaged: {error}") from None
    return dtype, shape, (start, end)
