"""A reader in a process of its own: what it does in a pass, what that costs in time and memory."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

Counts = tuple[int, int]
"""Samples and bytes of a batch."""
Epoch = Callable[[], Iterator[Counts]]
"""One epoch of a reader, batch by batch."""

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
SAMPLE_S = 0.01
LOADED = ["torch.utils.data", "numpy", "PIL.Image", "forebay_torch", "aistore.pytorch"]
LOADED += ["google.cloud.storage", "requests"]
"""Modules that are imported once, before readers fork: importing them takes a process a second."""


@dataclass(frozen=True)
class Spec:
    """How a reader is made; all of it can be pickled.

    Attributes:
        name: As the tables call it.
        make: Function of a module; its result is an epoch of the reader, which may be asked for
            again and again.
        server: The peer that it reads from, by the key in the bench.
        options: Of `make`, beside the place of the data.
        bucket: The bucket that it reads, where that is not its row's.
    """

    name: str
    make: Callable[..., Epoch]
    server: str = "forebay"
    options: dict[str, Any] = field(default_factory=dict)
    bucket: str = ""

    @property
    def ours(self) -> bool:
        return self.make.__module__.endswith(".ours")

    @property
    def roof(self) -> bool:
        return self.make.__module__.endswith(".roofs")


@dataclass
class Pass:
    """Figures of one pass of a reader.

    Attributes:
        wait_s: Seconds that the loop waited for batches; the rest of `seconds` it had for itself.
        marked_s: CPU seconds inside of what `marked` wraps: decoding.
        cpu_s: CPU seconds of the reader and all its processes; `server_cpu_s`: of the server's.
    """

    items: int = 0
    bytes: int = 0
    seconds: float = 0.0
    wait_s: float = 0.0
    marked_s: float = 0.0
    cpu_s: float = 0.0
    server_cpu_s: float = 0.0


class Worker:
    """A process that makes an epoch of a reader and, each time it is asked to, does a pass with it."""

    def __init__(
        self,
        spec: Spec,
        place: dict[str, Any],
        one_pass: Callable[..., Any],
        own_memory: bool = False,
    ) -> None:
        """Makes it; `place` says where its data is. `one_pass` gets the epoch and what `_ask` was given.

        With `own_memory` it loads all by itself, as a job does. Pages that it shared with the process
        it was forked off would count as grown when it first writes to them.
        """
        context: Any = multiprocessing.get_context("spawn" if own_memory else "forkserver")
        if not own_memory:
            context.set_forkserver_preload(LOADED)
        self.spec = spec
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, spec, place, one_pass))
        self._process.start()
        theirs.close()
        self._answer()

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._pipe.send(None)
        self._process.join(5)
        # A reader in the middle of a pass has not read the request; its workers see that it exited.
        self._process.kill()
        self._process.join()

    def _ask(self, *asked: float) -> Any:
        self._pipe.send(asked)
        return self._answer()

    def _answer(self) -> Any:
        try:
            answer = self._pipe.recv()
        except EOFError:
            raise RuntimeError(f"{self.spec.name}: its process ended") from None
        if isinstance(answer, str):
            raise RuntimeError(f"{self.spec.name}: {answer}")
        return answer


class Reader(Worker):
    """A reader at work."""

    def __init__(
        self,
        spec: Spec,
        place: dict[str, Any],
        compute_s: float = 0.0,
        own_memory: bool = False,
    ) -> None:
        """Makes it; `compute_s` is what the loop does per batch. The others as of `Worker`."""
        one = functools.partial(one_pass, compute_s=compute_s)
        super().__init__(spec, place, one, own_memory)
        self._before = memory(self.pid)

    def run(self, seconds: float, servers: list[int]) -> Pass:
        """One pass of about so many seconds, or of one epoch if that is longer."""
        mine, theirs = cpu_s(self.pid), sum(map(cpu_s, servers))
        done: Pass = self._ask(seconds)
        done.cpu_s = cpu_s(self.pid) - mine
        done.server_cpu_s = sum(map(cpu_s, servers)) - theirs
        return done

    def grown(self, seconds: float) -> int:
        """Most bytes of memory that a pass takes beyond what the reader had when it was made."""
        most, ended = 0, threading.Event()

        def watch() -> None:
            nonlocal most
            while not ended.wait(SAMPLE_S):
                most = max(most, memory(self.pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            self._ask(seconds)
        finally:
            ended.set()
            watcher.join()
        return max(0, most - self._before)


def serve(
    pipe: Connection, spec: Spec, place: dict[str, Any], one_pass: Callable[..., Any]
) -> None:
    """The process of a worker: a pass for every request that comes."""
    try:
        import torch

        torch.set_num_threads(1)  # the bench is about one loop, not about torch's threads
        # Default number of loader workers; the plots have more of them than cores.
        multiprocessing.set_start_method("fork", force=True)
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        epoch = spec.make(**place, **spec.options)
        pipe.send(True)
        while (asked := pipe.recv()) is not None:
            pipe.send(one_pass(epoch, *asked))
    except Exception:
        pipe.send(traceback.format_exc())
    finally:
        pipe.close()


def one_pass(epoch: Epoch, seconds: float, compute_s: float) -> Pass:
    done, mark = Pass(), marked_s()
    start = now = time.perf_counter()
    while now - start < seconds:
        batches, before = epoch(), done.items
        # Leaving in the middle of an epoch costs what it costs a training loop.
        with contextlib.closing(batches):
            while now - start < seconds:
                started = now
                batch = next(batches, None)
                now = time.perf_counter()
                if batch is None:
                    break
                done.wait_s += now - started
                done.items += batch[0]
                done.bytes += batch[1]
                if compute_s:
                    compute(compute_s)
                    now = time.perf_counter()
        if done.items == before:
            raise RuntimeError("an epoch has no samples")
    done.seconds = time.perf_counter() - start
    done.marked_s = marked_s() - mark
    return done


def compute(seconds: float) -> None:
    """Keeps one core busy, as a training step without an accelerator does."""
    import torch

    if not _matrix:
        _matrix.append(torch.rand(256, 256))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        torch.mm(_matrix[0], _matrix[0])


_matrix: list[Any] = []
_marked = multiprocessing.Value("d", 0.0)


def marked_s() -> float:
    """CPU seconds of functions wrapped by `marked` so far, in this process and its workers."""
    return float(_marked.value)


def marked(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function, its CPU time counted, in threads and workers too."""

    def counted(value: Any) -> Any:
        started = time.thread_time()
        result = function(value)
        took = time.thread_time() - started
        with _marked.get_lock():
            _marked.value += took
        return result

    return counted


def tree(pid: int) -> list[int]:
    """A process and all its descendants."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                with contextlib.suppress(OSError):
                    found += map(int, (task / "children").read_text().split())
    return found


def cpu_s(pid: int) -> float:
    """CPU seconds of a process and its descendants, those that ended counted too."""
    total = 0.0
    for one in tree(pid):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15])) * TICK_S
    return total


def memory(pid: int) -> int:
    """Bytes of memory of a process and its descendants, what they share counted once (PSS)."""
    total = 0
    for one in tree(pid):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{one}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) << 10
    return total
