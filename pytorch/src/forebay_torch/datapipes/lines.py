"""Lines of text files, split by the megabyte."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from typing import Any, BinaryIO

from torch.utils.data.datapipes.datapipe import IterDataPipe

from forebay_torch.datapipes.files import register

__all__ = ["LineReader"]

_CHUNK_BYTES = 1 << 20


class LineReader(IterDataPipe[Any]):
    """The lines of files, each with the path of its file.

    Files are split a megabyte at a time, so that a line costs about as much as an item of a list.
    A file that was read to its end is closed. Functional name: ``readlines``.

    Args:
        source_datapipe: Pairs of a path and a file, or another iterable of lines.
        skip_lines: How many lines at the beginning of each file are left out.
        strip_newline: Leave out what ends the lines.
        decode: Give texts instead of bytes.
        encoding, errors: As of ``bytes.decode``.
        return_path: Give pairs of a path and a line; else lines alone.

    Raises:
        ValueError: ``skip_lines`` is negative.
        LookupError: There is no such encoding.
    """

    def __init__(
        self,
        source_datapipe: Iterable[tuple[str, Any]],
        *,
        skip_lines: int = 0,
        strip_newline: bool = True,
        decode: bool = False,
        encoding: str = "utf-8",
        errors: str = "ignore",
        return_path: bool = True,
    ) -> None:
        super().__init__()
        if skip_lines < 0:
            raise ValueError(f"skip_lines must not be negative: {skip_lines}")
        self.source_datapipe = source_datapipe
        self._skip_lines = skip_lines
        self._strip_newline = strip_newline
        self._decode = decode
        self._encoding = encoding
        self._errors = errors
        self._return_path = return_path
        # Where a line break is one byte that is part of nothing else, many lines are decoded at once.
        self._at_once = "\n".encode(encoding) == b"\n"

    def _blocks(self) -> Iterator[Iterable[Any]]:
        """The lines of all files, many at a time."""
        for path, file in self.source_datapipe:
            skip = self._skip_lines
            try:
                for lines in self._blocks_of(file):
                    if skip:
                        skip, lines = max(0, skip - len(lines)), lines[skip:]
                    yield zip(repeat(path), lines, strict=False) if self._return_path else lines
            finally:
                if hasattr(file, "close"):
                    file.close()

    def _blocks_of(self, file: Any) -> Iterator[list[Any]]:
        if not hasattr(file, "read"):
            yield from ([self._line(line)] for line in file)
        elif self._decode and not self._at_once:
            raw: Any = _Readable(file)
            text = io.TextIOWrapper(raw, self._encoding, self._errors, newline="\n")
            yield from ([self._line(line)] for line in text)
        else:
            rest: list[bytes] = []
            while chunk := file.read(_CHUNK_BYTES):
                whole, newline, after = chunk.rpartition(b"\n")
                if not newline:
                    rest.append(chunk)
                    continue
                yield self._split(b"".join([*rest, whole]), ends=True)
                rest = [after]
            if last := b"".join(rest):
                yield self._split(last, ends=False)

    def _split(self, block: bytes, ends: bool) -> list[Any]:
        """The lines of a block without its last line break; ``ends`` says whether it had one."""
        lines: list[Any]
        if self._decode:
            lines = block.decode(self._encoding, self._errors).split("\n")
        else:
            lines = block.split(b"\n")
        if self._strip_newline:
            if b"\r" in block:
                lines = [self._line(line) for line in lines]
            return lines
        newline: Any = "\n" if self._decode else b"\n"
        last = lines.pop()
        lines = [line + newline for line in lines]
        lines.append(last + newline if ends else last)
        return lines

    def _line(self, line: Any) -> Any:
        """One line as it is to be delivered."""
        if self._decode and isinstance(line, bytes):
            line = line.decode(self._encoding, self._errors)
        if not self._strip_newline:
            return line
        return line.rstrip("\r\n" if isinstance(line, str) else b"\r\n")


def _iterate(self: LineReader) -> Iterator[Any]:
    return chain.from_iterable(self._blocks())


# Set here because a pipe's class puts counters of its own around what is called so when it is made,
# which for lines would cost more than all the rest.
LineReader.__iter__ = _iterate  # type: ignore[assignment,method-assign]
register("readlines", LineReader)


class _Readable(io.RawIOBase):
    """What has ``read`` as a file that TextIOWrapper takes."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file

    def readable(self) -> bool:
        return True

    def read1(self, size: int = -1) -> bytes:
        return self._file.read(_CHUNK_BYTES if size < 0 else max(size, _CHUNK_BYTES))
