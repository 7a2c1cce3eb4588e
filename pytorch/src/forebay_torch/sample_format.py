"""How the content of an object becomes a sample."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from forebay_torch.policy import stopped

__all__ = ["SampleFormat"]


class SampleFormat:
    """How the content of an object becomes a sample."""

    __slots__ = ("_function", "_return_name", "_zero_copy")

    def __init__(
        self, function: Callable[[Any], Any] | None, return_name: bool, zero_copy: bool
    ) -> None:
        self._function = function
        self._return_name = return_name
        self._zero_copy = zero_copy

    @property
    def has_function(self) -> bool:
        """Whether a function of the user makes the samples."""
        return self._function is not None

    @property
    def is_plain(self) -> bool:
        """Whether a sample is a name and ``bytes``, and nothing can fail on the way."""
        return self._function is None and self._return_name and not self._zero_copy

    def __reduce__(self) -> tuple[Any, ...]:
        if self._function is not None:
            try:
                pickle.dumps(self._function)
            except Exception as error:
                raise TypeError(
                    f"data_format_fn={self._function!r} cannot be pickled, as workers that are not "
                    "forked need it to be; define it at the top of a module, or use "
                    f"multiprocessing_context=\"fork\": {error}"
                ) from None
        return SampleFormat, (self._function, self._return_name, self._zero_copy)

    def __call__(self, name: str, content: memoryview | bytes) -> Any:
        # Content that is ``bytes`` already is not copied.
        sample: Any = content if self._zero_copy else bytes(content)
        if self._function is not None:
            try:
                sample = self._function(sample)
            except StopIteration as error:
                raise stopped("data_format_fn", f"the object {name!r}") from error
            except Exception as error:
                error.add_note(f"while data_format_fn worked on the object {name!r}")
                raise
        return (name, sample) if self._return_name else sample
