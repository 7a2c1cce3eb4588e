"""Steps of a loop as a trace in the JSON of Chrome, which Perfetto shows."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from forebay_torch.batch_timing import CAUSES, BatchRecord, wait_causes

__all__ = ["TracedStep", "write_trace"]

# The track of the loop; that of worker n is n + 1, and batches made in the training process are on 0.
_LOOP_TRACK = 1_000_000
# Shorter events are not seen.
_MIN_EVENT_S = 1e-6


TracedStep: TypeAlias = tuple[float, float, BatchRecord | None]
"""Start and end of a wait of the loop for a batch, and how the batch was made."""


def write_trace(path: str | os.PathLike[str], steps: Sequence[TracedStep]) -> None:
    """Writes the steps to a file that https://ui.perfetto.dev opens.

    A file of that name is replaced as a whole.
    """
    written = f"{os.fspath(path)}.{os.getpid()}.part"
    with open(written, "w", encoding="utf-8") as file:
        json.dump({"traceEvents": list(_events(steps)), "displayTimeUnit": "ms"}, file)
    os.replace(written, path)


def _events(steps: Sequence[TracedStep]) -> Iterator[dict[str, Any]]:
    tracks = {_LOOP_TRACK: "loop: waits"}
    for number, (start, end, record) in enumerate(steps):
        causes = {} if record is None else _milliseconds(wait_causes(start, end, record))
        yield _event(_LOOP_TRACK, "wait", start, end, {"step": number, **causes})
        if record is None:
            continue
        track = record.worker + 1
        tracks[track] = f"worker {record.worker}" if track else "training process"
        details = {"step": number, "samples": record.samples, "bytes": record.bytes}
        yield _event(track, "batch", record.start, record.end, details)
        for start, end, parts in record.segments():
            # The parts of a wait follow one another here; their true order is not known.
            now = start
            for cause, seconds in zip(CAUSES, parts, strict=True):
                if seconds >= _MIN_EVENT_S:
                    yield _event(track, cause, now, min(now + seconds, end), {})
                    now += seconds
    for track, name in tracks.items():
        about = {"ph": "M", "pid": os.getpid(), "tid": track}
        yield {**about, "name": "thread_name", "args": {"name": name}}
        yield {**about, "name": "thread_sort_index", "args": {"sort_index": track % _LOOP_TRACK}}


def _milliseconds(causes: Sequence[float]) -> dict[str, float]:
    return {
        f"{cause}_ms": round(seconds * 1e3, 3)
        for cause, seconds in zip(CAUSES, causes, strict=True)
        if seconds > 0
    }


def _event(track: int, name: str, start: float, end: float, details: dict[str, Any]) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": os.getpid(),
        "tid": track,
        "name": name,
        "ts": start * 1e6,
        "dur": (end - start) * 1e6,
        "args": details,
    }
