"""Parameters of the workloads, as MLPerf Storage publishes them, and how they are scaled here.

All files are of github.com/mlcommons/storage, folder configs/dlio/workload. `accelerators` is
`train.computation_time` of the file for each reference accelerator: seconds of a step.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

SOURCE = "github.com/mlcommons/storage, configs/dlio/workload"
LEAST_RECORD_BYTES = 1024
LARGEST_STDEVS = 2.0
"""Sizes of a normal distribution are cut this many standard deviations from their mean: a few dozen
samples do not have the rare large ones in the same number in each run."""


@dataclass(frozen=True)
class Training:
    """One training workload.

    Attributes:
        record_bytes: Mean bytes of a sample (`dataset.record_length_bytes`), `record_stdev` their
            standard deviation.
        samples_per_file: `dataset.num_samples_per_file`; an object has as many samples.
        read_threads: `reader.read_threads`: workers or threads of the loader.
        accelerators: Reference accelerator -> seconds of a step.
        utilization: `metric.au` of the file. The bench searches at `SEARCHED_UTILIZATION` for all.
        files: `dataset.num_files_train`.
        sources: The files.
    """

    name: str
    record_bytes: int
    record_stdev: int
    samples_per_file: int
    batch_size: int
    read_threads: int
    accelerators: dict[str, float]
    utilization: float
    files: int
    sources: tuple[str, ...]


SEARCHED_UTILIZATION = 0.90

UNET3D = Training(
    name="unet3d",
    record_bytes=146_600_628,
    record_stdev=68_341_808,
    samples_per_file=1,
    batch_size=7,
    read_threads=4,
    accelerators={"H100": 0.323, "B200": 0.162},
    utilization=0.90,
    files=168,
    sources=("unet3d_h100.yaml", "unet3d_b200.yaml"),
)
RETINANET = Training(
    name="retinanet",
    record_bytes=322_957,
    record_stdev=0,
    samples_per_file=1,
    batch_size=24,
    read_threads=8,
    accelerators={"B200": 0.04755},
    utilization=0.85,
    files=1_170_301,
    sources=("retinanet_b200.yaml",),
)


@dataclass(frozen=True)
class Scaled:
    """A workload as it is run here.

    Attributes:
        of: The workload as published.
        divisor: A sample has 1/divisor of its bytes. Seconds of a reference accelerator's step are
            divided by it too, so that bytes per second of compute are as published.
        files: Objects; each is read once an epoch.
    """

    of: Training
    divisor: int
    files: int

    def sizes(self) -> Iterator[int]:
        """Bytes of each object; the same in each run."""
        chosen = random.Random(self.of.name)
        mean, stdev = self.of.record_bytes, self.of.record_stdev
        for _ in range(self.files):
            size = chosen.gauss(mean, stdev) if stdev else float(mean)
            size = min(max(size, mean - LARGEST_STDEVS * stdev), mean + LARGEST_STDEVS * stdev)
            yield max(LEAST_RECORD_BYTES, int(size) // self.divisor)

    def reference_s(self) -> dict[str, float]:
        """Seconds of a step of the reference accelerators, for samples of this size."""
        return {name: step / self.divisor for name, step in self.of.accelerators.items()}


def scaled(quick: bool) -> list[Scaled]:
    """Both workloads, small enough that all servers have them on one disk and in memory.

    unet3d has 16 steps an epoch: more than the 8 batches that a loader of 4 workers reads ahead. A try
    has fewer, so its AU is too high.
    """
    if quick:
        return [Scaled(UNET3D, 256, 8 * 7), Scaled(RETINANET, 16, 8 * 24)]
    return [Scaled(UNET3D, 16, 16 * 7), Scaled(RETINANET, 1, 60 * 24)]


@dataclass(frozen=True)
class Checkpointing:
    """A checkpoint of a model and its optimizer, written by ranks that each have a part.

    Attributes:
        optimizer_values: Values of `optimizer_datatype` for each parameter: the master copy and the
            two moments of Adam. With them the state has 14 bytes a parameter, in all the 105 GiB
            (112 GB) that 8.03 * 10^9 parameters give.
        ranks: Processes with one accelerator each.
    """

    name: str
    layers: int
    vocabulary: int
    hidden: int
    ffn_hidden: int
    heads: int
    kv_heads: int
    model_bytes: int
    optimizer_bytes: int
    optimizer_values: int
    ranks: int
    source: str

    @property
    def parameters(self) -> int:
        """Parameters of the model, from its shapes."""
        kv = self.hidden * self.kv_heads // self.heads
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * kv
        layer = attention + 3 * self.hidden * self.ffn_hidden + 2 * self.hidden
        return 2 * self.vocabulary * self.hidden + self.layers * layer + self.hidden

    @property
    def state_bytes(self) -> int:
        """Bytes of the whole state."""
        return self.parameters * (self.model_bytes + self.optimizer_bytes * self.optimizer_values)


LLAMA3_8B = Checkpointing(
    name="llama3-8b",
    layers=32,
    vocabulary=128_256,
    hidden=4096,
    ffn_hidden=14_336,
    heads=32,
    kv_heads=8,
    model_bytes=2,
    optimizer_bytes=4,
    optimizer_values=3,
    ranks=8,
    source="llama3_8b.yaml",
)

PARAMETERS = ["workload", "samples or state", "readers", "step, or shape of the model", "file"]
"""Heads of `parameters`."""


def parameters() -> Iterator[tuple[str, ...]]:
    """The workloads as published, a line of the table in the notes for each."""
    for one in (UNET3D, RETINANET):
        steps = ", ".join(f"{name} {step:g} s" for name, step in one.accelerators.items())
        size = f"{one.record_bytes:,}" + (f" ± {one.record_stdev:,}" if one.record_stdev else "")
        counted = f"{one.files:,} of {size} bytes", f"batch {one.batch_size}, {one.read_threads} readers"
        yield one.name, *counted, f"{steps}; used for {one.utilization:.0%}", ", ".join(one.sources)
    model = LLAMA3_8B
    state = f"{model.parameters:,} parameters, {model.state_bytes / 1e9:.0f} GB"
    shape = f"{model.layers} layers of {model.hidden:,}, vocabulary {model.vocabulary:,}"
    yield model.name, state, f"{model.ranks} ranks", shape, model.source
