"""Expressions that many panels have, in the short forms of panel.py."""

from __future__ import annotations

from panel import Query


def rate(metric: str, by: str, matchers: str = "") -> str:
    """The rate of a counter, summed by labels."""
    return f"sum by ({by}) (rate({metric}{_nodes(matchers)}[RATE]))"


def share(metric: str, part: str, by: str = "", matchers: str = "") -> str:
    """The share that the samples with the matchers `part` have in the rate of a counter; 0 if there are none."""
    both = ",".join(filter(None, (part, matchers)))
    grouped = f"by ({by}) " if by else ""
    whole = f"sum {grouped}(rate({metric}{_nodes(matchers)}[RATE]))"
    return f"(sum {grouped}(rate({metric}{_nodes(both)}[RATE])) or 0 * {whole}) / {whole}"


def quantile(q: float, metric: str, by: str = "", matchers: str = "") -> str:
    """A quantile of a histogram, by labels."""
    labels = ", ".join(filter(None, ("le", by)))
    return f"histogram_quantile({q}, sum by ({labels}) (rate({metric}_bucket{_nodes(matchers)}[RATE])))"


def quantiles(metric: str, matchers: str = "") -> tuple[Query, ...]:
    """The median and the two quantiles that show slow requests."""
    return tuple(Query(quantile(q, metric, matchers=matchers), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99))


def heatmap(metric: str, matchers: str = "") -> tuple[Query, ...]:
    """The rate of each bucket of a histogram."""
    return (Query(f"sum by (le) (rate({metric}_bucket{_nodes(matchers)}[RATE]))", "{{le}}"),)


def one(expr: str, legend: str = "") -> tuple[Query, ...]:
    """The queries of a panel that has one."""
    return (Query(expr, legend),)


def _nodes(matchers: str) -> str:
    return "{NODES" + (f",{matchers}" if matchers else "") + "}"
