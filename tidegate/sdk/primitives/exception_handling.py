"""The result of a step with exception handling: two collections, with an error where it is used as one."""

from __future__ import annotations

from typing import Any, Final, NoReturn

from tidegate.sdk.errors import BuildError, MissingAttribute
from tidegate.sdk.pipeline import PCollection

DEAD_LETTER: Final[Any] = tuple[Any, tuple[str, str, list[str]]]
"""The type of dead letters: the element, and the name of the error's class, the error, and the lines of its
traceback."""


class Handled(tuple[Any, PCollection[Any]]):
    """`(good, bad)` of the step `label`. Transforms of several collections accept it like any tuple."""

    label: str

    @staticmethod
    def of(good: Any, bad: PCollection[Any], label: str) -> Handled:
        """The pair returned by a step."""
        pair = Handled((good, bad))
        pair.label = label
        return pair

    def refuse(self) -> NoReturn:
        """Raise BuildError because the pair was used as one collection."""
        raise BuildError(
            f"the step {self.label!r} has with_exception_handling, so it returns two collections: write "
            "`good, bad = ...`, and continue with one of them, as in `good | tg.Map(print)`"
        )

    def __or__(self, step: Any) -> Any:
        if not any("__ror__" in vars(base) for base in type(step).__mro__):
            self.refuse()
        return NotImplemented

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and (hasattr(PCollection, name) or name in _PCOLLECTION_ATTRIBUTES):
            self.refuse()
        hint = "" if name.startswith("_") else ": it is a pair, so write `good, bad = ...`"
        raise MissingAttribute(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=None)


_PCOLLECTION_ATTRIBUTES = frozenset({"pipeline", "id", "tag", "element_type", "windowing", "is_bounded"})
