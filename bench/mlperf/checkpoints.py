"""Checkpoints of a large model: every rank saves its part, then loads it; all at the same time.

As in the rules of MLPerf Storage (Submission_guidelines.md, 2.2.3), the duration is the longest of all
ranks, and the throughput of a rank is its bytes over its own time; the lowest counts. The throughput of
the whole checkpoint is all bytes over the duration.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from checkpoint import BUCKET, NATIVE, Way, our_way, s3torch_way
from feeding import data
from feeding.reader import LOADED, cpu_s
from measurement import GIB, Row, shown, spread
from mlperf.servers import Servers
from mlperf.workloads import LLAMA3_8B, SOURCE
from peers import MINIO_PASSWORD, MINIO_USER

DIVISOR, QUICK_DIVISOR = 64, 4096
RANK_TIMEOUT_S = 300


@dataclass(frozen=True)
class System:
    """One system with its client, by which each rank opens its files."""

    name: str
    server: str
    make: Callable[..., Way]
    arguments: tuple[str, ...]


def state_of(size: int) -> dict[str, Any]:
    """A rank's part: fp16 weights, and the master copy and two moments in fp32."""
    import torch

    parameters = size // (LLAMA3_8B.model_bytes + LLAMA3_8B.optimizer_bytes * LLAMA3_8B.optimizer_values)
    of_type = {"dtype": torch.float32}
    optimizer = {f"moment{n}": torch.rand(parameters, **of_type) for n in range(LLAMA3_8B.optimizer_values)}
    return {"model": torch.rand(parameters).to(torch.float16), **optimizer}


def serve(pipe: Any, rank: int, size: int, system: System) -> None:
    """The process of a rank: each word that comes is `save`, `load` or `remove`."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(rank)
    os.environ |= {"AWS_ACCESS_KEY_ID": MINIO_USER, "AWS_SECRET_ACCESS_KEY": MINIO_PASSWORD}
    way, state, name = system.make(*system.arguments), state_of(size), f"llama/rank{rank}.pt"
    pipe.send(sum(tensor.nbytes for tensor in state.values()))
    while (word := pipe.recv()) is not None:
        start = time.perf_counter()
        if word == "save":
            with way.writer(name) as file:
                torch.save(state, file)
        elif word == "load":
            with way.reader(name) as file:
                loaded = torch.load(file, weights_only=True)
            if not all(torch.equal(loaded[key], state[key]) for key in state):
                raise RuntimeError(f"{name}: another state came back")
        else:
            way.remove(name)
        pipe.send(time.perf_counter() - start)


class Ranks:
    """All ranks of one system."""

    def __init__(self, system: System, size: int) -> None:
        context: Any = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(LOADED)
        self.name, self.pipes, self.processes = system.name, [], []
        for rank in range(LLAMA3_8B.ranks):
            pipe, theirs = context.Pipe()
            process = context.Process(
                target=serve, args=(theirs, rank, size // LLAMA3_8B.ranks, system), daemon=True
            )
            process.start()
            theirs.close()
            self.pipes.append(pipe)
            self.processes.append(process)
        self.bytes = self._answers()

    def do(self, word: str) -> list[float]:
        """Seconds of each rank."""
        for pipe in self.pipes:
            pipe.send(word)
        return self._answers()

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()

    def _answers(self) -> list[Any]:
        found = []
        for pipe in self.pipes:
            if not pipe.poll(RANK_TIMEOUT_S):
                raise RuntimeError(f"{self.name}: a rank takes more than {RANK_TIMEOUT_S} s")
            try:
                found.append(pipe.recv())
            except EOFError:
                raise RuntimeError(f"{self.name}: a rank ended") from None
        return found


class Rounds:
    """The rounds of one system: all ranks save, the page cache is dropped, all load, all remove."""

    def __init__(self, servers: Servers, system: System, size: int) -> None:
        self.server = servers.forebay if system.server == "forebay" else servers.minio
        self.pids = [self.server.pid]
        if system.server == "forebay":
            self.pids.append(servers.forebay.gateway_pid)
        self.ranks = Ranks(system, size)
        self.bytes = sum(self.ranks.bytes)
        self.rates: dict[str, list[float]] = {"save": [], "load": []}
        self.slowest: dict[str, list[float]] = {"save": [], "load": []}
        self.cpu_s = dict.fromkeys(self.rates, 0.0)

    def round(self, is_counted: bool) -> None:
        """One round; the first one opens connections and is not counted."""
        for word in self.rates:
            before = sum(map(cpu_s, self.pids))
            seconds = self.ranks.do(word)
            if is_counted:
                self.rates[word].append(self.bytes / max(seconds))
                of_ranks = zip(self.ranks.bytes, seconds, strict=True)
                self.slowest[word].append(min(size / s for size, s in of_ranks))
                self.cpu_s[word] += sum(map(cpu_s, self.pids)) - before
            if word == "save" and self.server.folder is not None:
                data.forget(self.server.folder)
        self.ranks.do("remove")

    def row(self) -> Row:
        """Medians of the rounds."""
        row: Row = {"row": "mlperf llama3-8b checkpoint", "who": self.ranks.name, "bytes": self.bytes}
        for word, rates in self.rates.items():
            row[f"{word}_bytes_per_s"] = statistics.median(rates)
            row[f"{word}_bytes_per_s_spread"] = spread(rates)
            row[f"{word}_slowest_rank_bytes_per_s"] = statistics.median(self.slowest[word])
            row[f"{word}_server_cpu_s_per_gib"] = self.cpu_s[word] / len(rates) * GIB / self.bytes
        return row


def rows(servers: Servers, quick: bool, rounds: int) -> list[Row]:
    """Saved and loaded bytes a second of Forebay's native bucket and of s3torchconnector on MinIO.

    The systems save and load in turns, every other turn backwards.
    """
    divisor = QUICK_DIVISOR if quick else DIVISOR
    size = LLAMA3_8B.state_bytes // divisor
    servers.forebay.make_bucket(NATIVE)
    servers.minio.make_bucket(BUCKET)
    native = (servers.endpoint("forebay"), f"ais://{NATIVE}")
    systems = [
        System("Forebay, Checkpoint", "forebay", our_way, native),
        System("s3torchconnector on MinIO", "minio", s3torch_way, (servers.endpoint("minio"),)),
    ]
    with contextlib.ExitStack() as stack:
        running: list[Rounds] = []
        for system in systems:
            running.append(Rounds(servers, system, size))
            stack.callback(running[-1].ranks.close)
        for turn in range(rounds + 1):
            for one in running if turn % 2 == 0 else running[::-1]:
                one.round(is_counted=turn > 0)
        found = [one.row() for one in running]
    scale = {"state_divided_by": divisor, "ranks": LLAMA3_8B.ranks, "source": f"{SOURCE}: {LLAMA3_8B.source}"}
    ours = found[0]
    for row in found[1:]:
        for word in ("save", "load"):
            key = f"{word}_bytes_per_s"
            row[f"our_{word}"] = ours[key] / row[key]
    return [shown(row | scale) for row in found]
