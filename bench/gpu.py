"""Measures whether a GPU waits for its data: ResNet-50 fed by Forebay, and by files of the same disk.

    python bench/gpu.py --bin build/dist/forebay

A cluster of 1 + 3 stands before folders of generated images: JPEGs, which CPU workers decode, crop and flip,
and decoded images, for which the path of the data is all there is. Each feed trains an epoch in bf16 and
channels_last; a feed of Forebay trains one while the cluster is empty (cold), and one after it (warm). Then the
loop only copies an epoch to the GPU (alone). The run fails if an epoch does not have each sample once, or if, in
that last one, the sum of the bytes of a decoded image on the GPU is not that of the bytes written.

The loop waits for the GPU after each step, so the GPU idles while the loop waits for a batch. Loader, cluster and loop share the CPUs of the machine. Needs torchvision.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gpu_feeds
import peers
import torch
import torchvision
from feeding.reader import cpu_s
from gpu_feeds import RAW_BYTES, SIDE, Feed, Shape

SYNTHETIC = "tensor on the GPU"
LEARNING_RATE = 0.01


class Trainer:
    """ResNet-50 and its optimizer on the device; times what the GPU works.

    A step is one CUDA graph: launched one by one, its kernels come later than a fast GPU is done with them.
    """

    def __init__(self, batch: int, quick: bool, eager: bool) -> None:
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.backends.cudnn.benchmark = True
        made = torchvision.models.resnet18 if quick else torchvision.models.resnet50
        self.model = made().to(self.device, memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=LEARNING_RATE, momentum=0.9)
        color = (123.7, 116.3, 103.5), (58.4, 57.1, 57.4)
        self.mean, self.deviation = (torch.tensor(c, device=self.device).view(1, 3, 1, 1) for c in color)
        images = torch.zeros((batch, 3, SIDE, SIDE), dtype=torch.uint8, device=self.device)
        self.images = images.contiguous(memory_format=torch.channels_last)
        self.labels = torch.zeros(batch, dtype=torch.int64, device=self.device)
        self.graph = None if eager or self.device == "cpu" else self._captured()

    def _train(self) -> None:
        """One step on `images` and `labels`."""
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device, dtype=torch.bfloat16, cache_enabled=False):
            scores = self.model((self.images.float() - self.mean) / self.deviation)
            loss = torch.nn.functional.cross_entropy(scores, self.labels)
        loss.backward()
        self.optimizer.step()

    def _captured(self) -> Any:
        """The step as a graph."""
        warming = torch.cuda.Stream()
        warming.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warming):
            for _ in range(3):
                self._train()
        torch.cuda.current_stream().wait_stream(warming)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._train()
        return graph

    def moved(self, images: torch.Tensor) -> torch.Tensor:
        """The batch on the device, as (N, 3, SIDE, SIDE) in channels_last."""
        images = images.to(self.device, non_blocking=True)
        if images.dim() != 4:
            images = images.view(-1, SIDE, SIDE, 3).permute(0, 3, 1, 2)
        return images.contiguous(memory_format=torch.channels_last)

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> float:
        """Trains on a batch that is on the device; returns the seconds that the GPU took."""
        with self.timed() as took:
            self.images.copy_(images)
            self.labels.copy_(labels)
            if self.graph is None:
                self._train()
            else:
                self.graph.replay()
        return took[0]

    @contextlib.contextmanager
    def timed(self) -> Iterator[list[float]]:
        """Waits for what was issued in the block; the list then has its seconds on the GPU."""
        took: list[float] = []
        if self.device == "cpu":
            began = time.perf_counter()
            yield took
            took.append(time.perf_counter() - began)
            return
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        yield took
        end.record()
        end.synchronize()
        took.append(begin.elapsed_time(end) / 1000)


@dataclass
class Pass:
    """Figures of one epoch, behind the batches that the workers made while the loop began.

    Attributes:
        wait_share: Of the time, what the loop waited for batches.
        busy_share: Of the time, what the GPU worked on steps.
        first_s: Seconds from the beginning of the epoch to its first batch.
        client_ms, server_ms: CPU time of loop and loader, and of the cluster, for a sample of the epoch. The
            loop of a training spins while it waits for the GPU.
    """

    feed: str
    kind: str
    state: str
    samples_per_s: float
    wait_share: float
    busy_share: float
    first_s: float
    client_ms: float
    server_ms: float


class Bench:
    """The data, the feeds and the model."""

    def __init__(self, shape: Shape, trainer: Trainer, sums: torch.Tensor, servers: list[int]) -> None:
        self.shape = shape
        self.trainer = trainer
        self.sums = sums
        self.servers = servers

    def synthetic(self) -> Pass:
        """Trains on one batch again and again."""
        batch = self.shape.batch
        images = torch.randint(0, 256, (batch, 3, SIDE, SIDE), dtype=torch.uint8)
        images = self.trainer.moved(images)
        numbers = torch.arange(self.shape.samples).split(batch)
        return self.run(SYNTHETIC, "", "warm", ((images, n) for n in numbers))

    def of_feed(self, feed: Feed, state: str) -> Pass:
        """One epoch of a feed: cold, warm or alone."""
        if state == "cold" and feed.bucket is not None:
            feed.bucket.evict(prefix="").wait()
        return self.run(feed.name, feed.kind, state, feed.make(), feed.pair)

    def run(self, name: str, kind: str, state: str, loader: Iterable[Any], pair: Any = None) -> Pass:
        trainer, shape = self.trainer, self.shape
        steps = shape.samples // shape.batch
        skipped = min(2 * shape.workers, steps // 3)
        seen, wrong = [], 0
        wait_s = busy_s = first_s = 0.0
        cpu = [cpu_s(os.getpid()), sum(map(cpu_s, self.servers))]
        opened = begin = time.perf_counter()
        batches = iter(loader)
        for step in range(steps):
            asked = time.perf_counter()
            batch = next(batches)
            wait_s += time.perf_counter() - asked
            if step == 0:
                first_s = time.perf_counter() - opened
            images, numbers = batch if pair is None else pair(batch)
            del batch
            images = trainer.moved(images)
            seen.append(numbers)
            if state == "alone":
                with trainer.timed() as took:
                    sums = images.sum((1, 2, 3), dtype=torch.int64) if kind == "raw" else None
                busy_s += took[0]
                if sums is not None:
                    wrong += int((sums.cpu() != self.sums[numbers]).sum())
            else:
                busy_s += trainer.step(images, (numbers % 1000).to(trainer.device))
            del images
            if step + 1 == skipped:
                begin, wait_s, busy_s = time.perf_counter(), 0.0, 0.0
        seconds = time.perf_counter() - begin
        if next(batches, None) is not None:
            sys.exit(f"error: {name}, {kind}: more batches than {steps}")
        del batches
        if wrong or not torch.equal(torch.cat(seen).sort().values, torch.arange(shape.samples)):
            sys.exit(f"error: {name}, {kind}, {state}: samples were lost, repeated or altered ({wrong})")
        used = [cpu_s(os.getpid()) - cpu[0], sum(map(cpu_s, self.servers)) - cpu[1]]
        return Pass(
            name, kind, state,
            (steps - skipped) * shape.batch / seconds, wait_s / seconds, busy_s / seconds, first_s,
            *(1000 * one / shape.samples for one in used),
        )  # fmt: skip


def table(passes: list[Pass]) -> str:
    """Medians of the passes, in Markdown."""

    def median(feed: str, kind: str, state: str, figure: str) -> float | None:
        found = [
            getattr(one, figure) for one in passes if (one.feed, one.kind, one.state) == (feed, kind, state)
        ]
        return statistics.median(found) if found else None

    def cell(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    bound = median(SYNTHETIC, "", "warm", "samples_per_s") or 1.0
    lines = [
        "| data | feed | samples/s | of the bound | wait | GPU busy | cold: samples/s | wait | first batch, s "
        "| alone: samples/s | CPU ms a sample, client + server |",
        "|---|---|" + "--:|" * 9,
    ]
    for kind, feed in dict.fromkeys((one.kind, one.feed) for one in passes):
        warm, cold, alone = (
            {figure: median(feed, kind, state, figure) for figure in Pass.__annotations__ if "_" in figure}
            for state in ("warm", "cold", "alone")
        )
        rate = warm["samples_per_s"]
        cells = [
            kind or "none", feed, cell(rate, ",.0f"), cell(rate and rate / bound, ".0%"),
            cell(warm["wait_share"], ".1%"), cell(warm["busy_share"], ".1%"),
            cell(cold["samples_per_s"], ",.0f"), cell(cold["wait_share"], ".1%"), cell(warm["first_s"], ".2f"),
            cell(alone["samples_per_s"], ",.0f"),
            f"{cell(alone['client_ms'], '.2f')} + {cell(alone['server_ms'], '.2f')}",
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, help="the forebay binary")
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    parser.add_argument("--dir", type=Path, help="where data and cluster are kept meanwhile; by default in --out")
    parser.add_argument("--samples", type=int, default=16_384, help="a multiple of 128 times --workers")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--workers", type=int, default=min(16, os.cpu_count() or 1))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="feeds whose kind and name contain this")
    parser.add_argument("--eager", action="store_true", help="steps as single kernels, not as one CUDA graph")
    parser.add_argument("--quick", action="store_true", help="a try on any machine: ResNet-18, little data")
    options = parser.parse_args()
    if options.quick:
        options.samples, options.batch, options.rounds = 64, 8, 1
    shard_samples = 16 if options.quick else 128
    if options.samples % (shard_samples * options.workers) or shard_samples % options.batch:
        sys.exit("error: --samples and --batch do not share the shards equally among the workers")
    shape = Shape(options.samples, shard_samples, options.batch, options.workers)
    options.out.mkdir(parents=True, exist_ok=True)
    # Servers and their folders go also when this is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    torch.set_num_threads(1)
    passes: list[Pass] = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.dir or options.out)))
        folder = folder.absolute()
        data = folder / "data"
        data.mkdir()
        mean, sums = gpu_feeds.write(data, shape)
        print(f"{shape.samples} samples: JPEGs of {mean / 1000:.0f} KB, raw ones of {RAW_BYTES / 1000:.0f} KB")
        server = stack.enter_context(
            peers.forebay(options.bin, folder / "forebay", 3, "--folder-root", str(data), "--size", "16GiB")
        )
        import forebay

        nodes = json.loads((folder / "forebay/dev.json").read_text())
        pids = [node["pid"] for node in nodes["gateways"] + nodes["targets"]]
        trainer = Trainer(shape.batch, options.quick, options.eager)
        device = torch.cuda.get_device_name() if trainer.device == "cuda" else "CPU"
        about: dict[str, Any] = {"device": device, "cpus": os.cpu_count(), "torch": torch.__version__, "jpeg_bytes": mean}
        about["graph"] = trainer.graph is not None
        print(f"{device}, {os.cpu_count()} CPUs, torch {torch.__version__}, {shape}", flush=True)
        bench = Bench(shape, trainer, sums, pids)
        found = gpu_feeds.feeds(forebay.Client(server.endpoint), data, shape)
        bench.synthetic()  # warms up

        def keep(one: Pass) -> None:
            passes.append(one)
            print(json.dumps(asdict(one)), file=sys.stderr, flush=True)
            result = {**about, "shape": asdict(shape), "passes": [asdict(p) for p in passes]}
            (options.out / "gpu.json").write_text(json.dumps(result, indent=1) + "\n")

        for number in range(options.rounds):
            keep(bench.synthetic())
            # Every other round backwards.
            for feed in found if number % 2 == 0 else reversed(found):
                if options.only in f"{feed.kind} {feed.name}":
                    states = ["warm", "alone"] if feed.bucket is None else ["cold", "warm", "alone"]
                    for state in states:
                        keep(bench.of_feed(feed, state))
            print(table(passes), flush=True)


if __name__ == "__main__":
    main()
