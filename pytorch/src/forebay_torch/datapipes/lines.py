"""Lines of text files, split by the megabyte."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, compress, count, repeat
from typing import Any, BinaryIO

from torch.utils.data.datapipes.datapipe import (
    IterDataPipe,
    _IterDataPipeSerializationWrapper,
)

from forebay_torch import dist
from forebay_torch.datapipes.files import register
from forebay_torch.datapipes.sharing import dealt, ranks_of_lines

__all__ = ["LineReader"]

_CHUNK_BYTES = 1 << 20
_STATE_VERSION = 1


class _Pass:
    """How far a pass is: lines that it drops at its beginning, and what counts those behind them."""

    __slots__ = ("skip", "counter", "has_started")

    def __init__(self, skip: int = 0) -> None:
        self.skip = skip
        self.counter = count(1)
        self.has_started = False

    @property
    def lines(self) -> int:
        """Lines that were delivered, those that are dropped included."""
        # From Python 3.14 on only its text shows where a count is.
        return self.skip + int(repr(self.counter)[6:-1]) - 1

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy begins anew.
        return _Pass, ()


class LineReader(IterDataPipe[Any]):
    """The lines of files, each with the path of its file.

    Files are split a megabyte at a time, so that a line costs about as much as an item of a list.
    A file that was read to its end is closed. As the last pipe it resumes in a StatefulDataLoader at
    the exact line: lines before it are read again and dropped. Functional name: ``readlines``.

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
        # The latest pass, and how many lines the next one drops.
        self._pass: _Pass | None = None
        self._next_skip = 0
        # Where a line break is one byte that is part of nothing else, many lines are decoded at once.
        self._is_ascii_newline = "\n".encode(encoding) == b"\n"

    def state_dict(self) -> dict[str, Any]:
        """How many lines this process has delivered of the pass."""
        lines = self._next_skip if self._pass is None else self._pass.lines
        return {"forebay_lines": _STATE_VERSION, "lines": lines, "worker": _worker()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the pass that begins next in this process go on behind the lines that the state counts.

        Raises:
            ValueError: It is no state of a LineReader, or one of a loader with other workers.
        """
        if not isinstance(state, Mapping) or state.get("forebay_lines") != _STATE_VERSION:
            raise ValueError("LineReader: this is no state of a LineReader")
        if state["worker"] != _worker():
            raise ValueError(
                f"LineReader: the state is of worker {state['worker'][0]} of {state['worker'][1]}; "
                "lines resume with the same number of workers"
            )
        self._next_skip = state["lines"]
        if self._pass is not None and not self._pass.has_started:
            # A loader makes the iterator before it loads the state.
            self._pass.skip = self._next_skip
        else:
            self._pass = None

    def _left(self, made: _Pass) -> Iterator[Iterable[Any]]:
        """As ``_blocks``, without the lines that the pass drops."""
        made.has_started, self._next_skip = True, 0
        skip = made.skip
        blocks: Iterator[Iterable[Any]] = self._blocks()
        if ranks := ranks_of_lines(self.source_datapipe):
            blocks = dealt(blocks, *ranks)
        for block in blocks:
            if skip:
                lines = list(block)
                skip, block = max(0, skip - len(lines)), lines[skip:]
            yield block

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
        elif self._decode and not self._is_ascii_newline:
            raw: Any = _Readable(file)
            text = io.TextIOWrapper(raw, self._encoding, self._errors, newline="\n")
            yield from ([self._line(line)] for line in text)
        else:
            yield from self._split(file)

    def _split(self, file: Any) -> Iterator[list[Any]]:
        """The lines of a file of bytes, chunk by chunk."""
        # The bytes behind the last line break so far.
        rest: list[bytes] = []
        while chunk := file.read(_CHUNK_BYTES):
            begin, end = chunk.find(b"\n"), chunk.rfind(b"\n")
            if end < 0:
                rest.append(chunk)
                continue
            first = b"".join([*rest, chunk[:begin]])
            rest = [chunk[end + 1 :]]
            yield self._finished(self._lines(first, chunk, begin, end), b"\r" in chunk or b"\r" in first)
        if last := b"".join(rest):
            yield self._finished(self._lines(last, b"", 0, 0), b"\r" in last, ends=False)

    def _lines(self, first: bytes, chunk: bytes, begin: int, end: int) -> list[Any]:
        """The line ``first``, and those between two line breaks of a chunk, without copying it."""
        if not self._decode:
            return [first, *chunk.split(b"\n")[1:-1]]
        lines = [first.decode(self._encoding, self._errors)]
        if begin < end:
            between = memoryview(chunk)[begin + 1 : end]
            lines += str(between, self._encoding, self._errors).split("\n")
        return lines

    def _finished(self, lines: list[Any], has_returns: bool, ends: bool = True) -> list[Any]:
        """The lines as they are to be delivered; ``ends`` says whether a line break follows the last."""
        if self._strip_newline:
            return [self._line(line) for line in lines] if has_returns else lines
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
    caller = sys._getframe(1).f_locals.get("self")
    if isinstance(caller, _IterDataPipeSerializationWrapper) and caller._datapipe is self:
        # A DataLoader puts every pipe into this wrapper, and a StatefulDataLoader looks for a state
        # at the wrapper alone. Without one, a second resume is wrong.
        vars(caller).update(state_dict=self.state_dict, load_state_dict=self.load_state_dict)
    made = self._pass = _Pass(self._next_skip)
    # Counts without Python: a number is taken with each line, and none of them is 0.
    return compress(chain.from_iterable(self._left(made)), made.counter)


def _worker() -> list[int]:
    worker = dist.worker()
    return [worker.id, worker.total]


# Set here because a pipe's class puts counters of its own around what is called so when it is made,
# which for lines would cost more than all the rest.
LineReader.__iter__ = _iterate  # type: ignore[assignment,method-assign]
register("readlines", LineReader)


class _Readable(io.RawIOBase):
    """Wraps an object with ``read`` as a file that TextIOWrapper takes."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file

    def readable(self) -> bool:
        return True

    def read1(self, size: int = -1) -> bytes:
        return self._file.read(_CHUNK_BYTES if size < 0 else max(size, _CHUNK_BYTES))
