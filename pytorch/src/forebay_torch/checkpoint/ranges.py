"""Which requests bring what is wanted of a file: neighbours as one, little in between."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["coalesced"]

# Of what is wanted, so much more may be read for the sake of fewer requests.
_WASTE = 0.08
_MAX_GAP = 1 << 20
_MAX_RANGE = 32 << 20


def coalesced(
    spans: Iterable[tuple[int, int]],
    *,
    waste: float = _WASTE,
    max_gap: int = _MAX_GAP,
    max_range: int = _MAX_RANGE,
) -> list[tuple[int, int]]:
    """Ranges ``(start, end)`` in order that have all spans, each span whole in one of them.

    Args:
        spans: ``(start, length)`` of what is wanted, in any order; they may overlap.
        waste: Gaps are read too, the smallest first, up to this share of what is wanted.
        max_gap: No gap of more bytes is read.
        max_range: Ranges are not joined beyond so many bytes.
    """
    merged: list[list[int]] = []
    for start, length in sorted(span for span in spans if span[1] > 0):
        if merged and start < merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], start + length)
        else:
            merged.append([start, start + length])
    budget = waste * sum(end - start for start, end in merged)
    gaps = [after[0] - before[1] for before, after in zip(merged, merged[1:], strict=False)]
    joined = set()
    for at in sorted(range(len(gaps)), key=lambda at: gaps[at]):
        if gaps[at] > min(max_gap, budget):
            break
        budget -= gaps[at]
        joined.add(at)
    ranges: list[list[int]] = []
    for at, (start, end) in enumerate(merged):
        if at - 1 in joined and end - ranges[-1][0] <= max_range:
            ranges[-1][1] = end
        else:
            ranges.append([start, end])
    return [(start, end) for start, end in ranges]
