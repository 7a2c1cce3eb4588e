"""How the cluster tries a cloud again for one client."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Retry"]

# Where only time is to end the tries.
_MAX_ATTEMPTS = 100
_FOR_EVER_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Retry:
    """Pauses and end of the tries of a cloud, as ``google.api_core.retry.Retry`` has them.

    It goes with every request of a client made with it, and the targets keep to it when they ask a
    bucket's backend for that request. Between the client and the cluster ``Client(timeout=)`` holds.

    Attributes:
        initial: Seconds of the pause before the second try.
        multiplier: Each pause is so many times the one before, from 1 to 10.
        maximum: Most seconds of a pause.
        deadline: Seconds after the first try from which on none begins.
        max_attempts: Most tries, the first included, from 1 to 100; None: as many as time allows.
        jitter: Whether half of each pause is left to chance.

    Raises:
        ValueError: A number makes no sense.

    Example:
        >>> Retry().with_deadline(60.0).with_delay(initial=1.0, multiplier=1.2, maximum=45.0).maximum
        45.0
    """

    initial: float = 0.1
    multiplier: float = 2.0
    maximum: float = 30.0
    deadline: float = 600.0
    max_attempts: int | None = None
    jitter: bool = True

    def __post_init__(self) -> None:
        for name in ("initial", "maximum", "deadline"):
            seconds = getattr(self, name)
            if not 0 <= seconds < float("inf"):
                raise ValueError(f"Retry: {name} is a number of seconds, not {seconds!r}")
        if not 1 <= self.multiplier <= 10:
            raise ValueError(f"Retry: multiplier is from 1 to 10, not {self.multiplier!r}")
        most = self.max_attempts
        if most is not None and not 1 <= most <= _MAX_ATTEMPTS:
            raise ValueError(f"Retry: max_attempts is from 1 to {_MAX_ATTEMPTS}, not {most!r}")

    def with_delay(
        self,
        initial: float | None = None,
        maximum: float | None = None,
        multiplier: float | None = None,
    ) -> Retry:
        """The same with other pauses; what is not given stays."""
        return replace(
            self,
            initial=self.initial if initial is None else initial,
            maximum=self.maximum if maximum is None else maximum,
            multiplier=self.multiplier if multiplier is None else multiplier,
        )

    def with_deadline(self, deadline: float) -> Retry:
        """The same with another deadline."""
        return replace(self, deadline=deadline)

    @classmethod
    def of(cls, given: Any) -> Retry | None:
        """``given`` as a Retry: itself, None, or an object made like google.api_core's.

        Raises:
            TypeError: It is neither.
        """
        if given is None or isinstance(given, cls):
            return given

        def number(name: str, otherwise: float) -> float:
            found = getattr(given, f"_{name}", None)
            return float(found) if isinstance(found, int | float) else otherwise

        if not isinstance(getattr(given, "_initial", None), int | float):
            kind = type(given).__name__
            raise TypeError(f"a retry is a forebay.Retry or google.api_core's, not a {kind}")
        usual = cls()
        return cls(
            initial=number("initial", usual.initial),
            multiplier=number("multiplier", usual.multiplier),
            maximum=number("maximum", usual.maximum),
            # Where google.api_core has no deadline it goes on for ever.
            deadline=number("deadline", number("timeout", _FOR_EVER_S)),
        )

    def header(self) -> str:
        """The value of the header ``forebay-cloud-retry``."""
        attempts = _MAX_ATTEMPTS if self.max_attempts is None else self.max_attempts
        return (
            f"attempts={attempts},first_pause_ms={round(self.initial * 1000)},"
            f"multiplier={self.multiplier:g},longest_pause_ms={round(self.maximum * 1000)},"
            f"deadline_ms={round(self.deadline * 1000)},jitter={0.5 if self.jitter else 0:g}"
        )
