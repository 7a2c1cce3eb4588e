"""What the documents that Forebay answers say of a row, and why our scale is smaller."""

from __future__ import annotations

from typing import Any

from compare.row import Seed

FEEDING: dict[str, dict[str, Any]] = {}
"""By the key of a row of `bench/feed.py`: arguments of its `Row`."""
CHECKPOINTS: dict[Any, Any] = {}
BATCHES: dict[str, Any] = {}
STORE: dict[str, Any] = {}
CLOUDS: dict[str, Any] = {}
