"""The tables that outlive the rounds of a loop, for the operators of its body."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

Group: TypeAlias = tuple[list[Any], ...]
"""The values of a key, a list for each collection."""

Groups: TypeAlias = dict[Any, Group]
"""For each key its values."""


@dataclass(frozen=True, slots=True)
class KeptTables:
    """The groups of the inputs of a CoGroupByKey that are the same in all rounds, by window. `filled` are the numbers
    of those inputs that have elements; `changing` is that of the only other input, if there is one. Nothing changes the
    tables: the groups of a round get copies of their lists."""

    by_window: Mapping[Any, Groups]
    filled: tuple[int, ...]
    changing: int | None = None

    def emitted_alone(self, needs: Collection[int]) -> dict[Any, Groups]:
        """The groups that a round emits for keys that have no values in it, if a group needs the inputs `needs`."""
        return dict(self.by_window) if set(needs) <= set(self.filled) else {}


@dataclass(frozen=True, slots=True)
class JoinTables:
    """Of a Join of what changes with what is the same in all rounds, the values that are the same, by window and key.
    `changing` is the number of the input that changes. Nothing changes the tables."""

    by_window: Mapping[Any, Mapping[Any, Sequence[Any]]]
    changing: int


Kept: TypeAlias = KeptTables | JoinTables
"""What is kept for a CoGroupByKey."""


class Prepared:
    """What is made once for all rounds of a loop, by name: generated code, for instance. With `keeps=False` it is made
    each time, as outside of loops."""

    __slots__ = ("_made",)

    def __init__(self, *, keeps: bool = False) -> None:
        self._made: dict[Hashable, Any] | None = {} if keeps else None

    def once(self, name: Hashable, make: Callable[[], T]) -> T:
        """What `make` has made of that name."""
        if self._made is None:
            return make()
        if name not in self._made:
            self._made[name] = make()
        made: T = self._made[name]
        return made


@dataclass(frozen=True, slots=True)
class LoopTables:
    """What is kept for the steps of a body, by label; and the solutions that they look up, by collection, each with the
    value of every key by window. `parts` has, instead, the task's parts of the solutions that all tasks keep together:
    an `iteration.kept_solution.KeptSolution` each. `prepared` is what the steps have prepared."""

    kept: Mapping[str, Kept] = field(default_factory=dict)
    solutions: Mapping[str, Mapping[Any, Mapping[Any, Any]]] = field(default_factory=dict)
    parts: Mapping[str, object] = field(default_factory=dict)
    prepared: Prepared = field(default_factory=Prepared)
