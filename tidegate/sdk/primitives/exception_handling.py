"""What a step with exception handling gives: two collections, which say so where one is meant."""

from __future__ import annotations

from typing import Any, NoReturn

from tidegate.sdk.errors import BuildError
from tidegate.sdk.pipeline import PCollection


class Handled(tuple[Any, PCollection[Any]]):
    """`(good, bad)` of the step `label`. Transforms of several collections take it as they take any tuple."""

    label: str

    @staticmethod
    def of(good: Any, bad: PCollection[Any], label: str) -> Handled:
        """The pair of a step."""
        pair = Handled((good, bad))
        pair.label = label
        return pair

    def refuse(self) -> NoReturn:
        """Raise BuildError, for it was used as one collection."""
        raise BuildError(
            f"the step {self.label!r} has with_exception_handling, so it gives two collections: write "
            "`good, bad = ...`, and go on from one of them, as in `good | tg.Map(print)`"
        )

    def __or__(self, step: Any) -> Any:
        if not any("__ror__" in vars(base) for base in type(step).__mro__):
            self.refuse()
        return NotImplemented

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and (hasattr(PCollection, name) or name in _OF_ONE):
            self.refuse()
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


_OF_ONE = frozenset({"pipeline", "id", "tag", "element_type", "windowing", "is_bounded"})
