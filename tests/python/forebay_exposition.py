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


@dataclass
class Family:
    """A metric: its type, its help, and its samples by their labels."""

    kind: str = ""
    help: str = ""
    samples: dict[tuple[tuple[str, str], ...], float] = field(default_factory=dict)


def parse(text: str) -> dict[str, Family]:
    """The families of a page.

    Raises:
        ValueError: The page breaks a rule: HELP and TYPE once and before the samples, a family in
            one piece, no series twice, known escapes, numbers, `_total` for counters and for
            nothing else, base units.
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
            family = families.get(found[1])
            if found[1] != current or family is None or not family.kind:
                raise ValueError(f"a sample outside of its family: {where}")
            labels = _labels(found[2], where)
            if labels in family.samples:
                raise ValueError(f"this series is there twice: {where}")
            family.samples[labels] = float(found[3])
        else:
            raise ValueError(f"not a line of the format: {where}")
    for name, family in families.items():
        if (family.kind == "counter") != name.endswith("_total"):
            raise ValueError(f"{name} is a {family.kind}")
        if _OTHER_UNITS.search(name):
            raise ValueError(f"{name} is in another unit than seconds or bytes")
        if not family.samples:
            raise ValueError(f"{name} has no sample")
    return families


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
