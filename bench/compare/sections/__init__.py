"""The sections of a run, in order. A module in this folder with a `SECTION` is one."""

from __future__ import annotations

import importlib
import pkgutil

from compare.row import Section

FIRST = ("feeding", "checkpoints", "batches", "store", "clouds")
"""Sections that the pages begin with; others follow by name."""


def all_sections() -> list[Section]:
    """All sections; ValueError if two rows have one id, or a row the id of another section."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    found = [importlib.import_module(f"{__name__}.{name}").SECTION for name in names]
    place = {name: number for number, name in enumerate(FIRST)}
    found.sort(key=lambda section: (place.get(section.name, len(place)), section.name))
    seen: set[str] = set()
    for section in found:
        for row in section.rows:
            if row.id in seen or row.section != section.name:
                raise ValueError(f"row {row.id} of section {section.name}: not its own id")
            seen.add(row.id)
    return found
