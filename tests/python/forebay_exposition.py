"""The text format of Prometheus, read as strictly as its specification has it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_HELP = re.compile(rf"# HELP ({_NAME}) (.+)")
_TYPE = re.compile(rf"# TYPE ({_NAME}) (counter|gauge|histogram|summary|untyped)")
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(,|$)')
# Base units only, as the naming rules of Prometheus ask.
_OTHER_UNITS = re.compile(r"_(ms|us|ns|millis|milliseconds|micros|minutes|hours|kb|kib|mb|mib|gb)(_|$)")

Labels = tuple[tuple[str, str], ...]


@dataclass
class Family:
    """A metric: its type, its help, and its samples by their labels; of a histogram, the counts."""

    kind: str = ""
    help: str = ""
    samples: dict[Labels, float] = field(default_factory=dict)
    sums: dict[Labels, float] = field(default_factory=dict)
    # Upper bounds and counts, in the order of the page.
    buckets: dict[Labels, list[tuple[float, float]]] = field(default_factory=dict)


def parse(text: str) -> dict[str, Family]:
    """The families of a page.

    Raises:
        ValueError: The page breaks a rule: HELP and TYPE once and before the samples, a family in
            one piece, no series twice, known escapes, numbers, `_total` for counters and for
            nothing else, base units, whole histograms.
    """
    if text and not text.endswith("\n"):
        raise ValueError("the last line does not end")
    families: dict[str, Family] = {}
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        where = f"line {number}: {line}"
        if not line:
            continue
        if found := _HELP.fullmatch(line):
            current = found[1]
            if current in families:
                raise ValueError(f"a second HELP line, or a family in pieces: {where}")
            families[current] = Family(help=found[2])
        elif found := _TYPE.fullmatch(line):
            family = families.get(found[1])
            if found[1] != current or family is None or family.kind or family.samples:
                raise ValueError(f"TYPE does not follow the HELP of its family: {where}")
            family.kind = found[2]
        elif found := _SAMPLE.fullmatch(line):
            family = families.get(current)
            if family is None or not family.kind:
                raise ValueError(f"a sample outside of its family: {where}")
            _add(family, found[1].removeprefix(current), _labels(found[2], where), float(found[3]), where)
        else:
            raise ValueError(f"not a line of the format: {where}")
    for name, family in families.items():
        if (family.kind == "counter") != name.endswith("_total"):
            raise ValueError(f"{name} is a {family.kind}")
        if _OTHER_UNITS.search(name):
            raise ValueError(f"{name} is in another unit than seconds or bytes")
        if not family.samples:
            raise ValueError(f"{name} has no sample")
        if family.kind == "histogram":
            _check_histogram(name, family)
    return families


def _add(family: Family, suffix: str, labels: Labels, value: float, where: str) -> None:
    """Adds a sample, whose name is that of the family and this suffix."""
    if family.kind == "histogram" and suffix == "_bucket":
        bound = dict(labels).get("le")
        if bound is None:
            raise ValueError(f"a bucket without an upper bound: {where}")
        series = tuple(label for label in labels if label[0] != "le")
        family.buckets.setdefault(series, []).append((float(bound), value))
        return
    parts = {"_count": family.samples, "_sum": family.sums} if family.kind == "histogram" else {}
    samples = parts.get(suffix) if parts else (family.samples if not suffix else None)
    if samples is None:
        raise ValueError(f"a sample outside of its family: {where}")
    if labels in samples:
        raise ValueError(f"this series is there twice: {where}")
    samples[labels] = value


def _check_histogram(name: str, family: Family) -> None:
    if not family.samples.keys() == family.sums.keys() == family.buckets.keys():
        raise ValueError(f"a series of {name} has no count, no sum or no buckets")
    for labels, buckets in family.buckets.items():
        bounds, counts = [bound for bound, _ in buckets], [count for _, count in buckets]
        if bounds != sorted(set(bounds)) or bounds[-1] != float("inf"):
            raise ValueError(f"the bounds of {name} do not rise to infinity: {labels}")
        if counts != sorted(counts) or counts[-1] != family.samples[labels]:
            raise ValueError(f"the counts of {name} do not rise to the whole count: {labels}")


def _labels(text: str | None, where: str) -> tuple[tuple[str, str], ...]:
    labels: dict[str, str] = {}
    at = 0
    while text and at < len(text):
        found = _LABEL.match(text, at)
        if not found or found[1] in labels:
            raise ValueError(f"labels cannot be read: {where}")
        labels[found[1]] = found[2]
        at = found.end()
    return tuple(sorted(labels.items()))
