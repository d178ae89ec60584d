"""Matchers: conditions on the elements of a collection, and descriptions of the differences.

A matcher gets the recorded elements and returns a description of the mismatch, or None. It ignores order, which a
collection doesn't have. Equality is Python's `==`: `1`, `1.0` and `True` are equal, and values may contain patterns
such as `ANY`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from tidegate.sdk.errors import BuildError, counted, shorten
from tidegate.sdk.windowing.window import window_end
from tidegate.testing.expected_panes import Recorded, as_window, same, window_text

LINES: Final = 20
"""The most elements that a message lists under one heading."""


class Matcher(ABC):
    """A condition on a collection. With `per_window` it gets a `Recorded` for each window of each element."""

    per_window = False

    @abstractmethod
    def mismatch(self, actual: list[Any]) -> str | None:
        """Describe how the elements (`Recorded` if `per_window`) differ from what is expected; None if they don't."""


@dataclass(frozen=True, slots=True)
class EqualTo(Matcher):
    """Exactly these elements."""

    expected: tuple[Any, ...]

    def mismatch(self, actual: list[Any]) -> str | None:
        return difference(self.expected, actual)


@dataclass(frozen=True, slots=True)
class EqualToPerWindow(Matcher):
    """Exactly these elements in each window, and none in other windows."""

    expected: tuple[tuple[Any, tuple[Any, ...]], ...]
    per_window = True

    def mismatch(self, actual: list[Recorded]) -> str | None:
        found: dict[Any, list[Any]] = {}
        for record in actual:
            found.setdefault(record.window, []).append(record.value)
        wrong = []
        wanted = dict(self.expected)
        for window in sorted({*wanted, *found}, key=lambda window: (window_end(window), repr(window))):
            problem = difference(wanted.get(window, ()), found.get(window, []))
            if problem:
                note = "" if window in wanted else ", which should be empty"
                wrong.append(f"in window {window_text(window)}{note}:\n{_indented(problem)}")
        return "\n".join(wrong) or None


@dataclass(frozen=True, slots=True)
class Contains(Matcher):
    """At least these elements, each at least as often as it is given."""

    expected: tuple[Any, ...]

    def mismatch(self, actual: list[Any]) -> str | None:
        missing, others = pair_up(self.expected, actual)
        if not missing:
            return None
        lines = [f"found {_count(actual)}", *_listed("missing", "expected, not found", missing, others)]
        return "\n".join(lines + _listed("others", "found", others, missing))


@dataclass(frozen=True, slots=True)
class IsEmpty(Matcher):
    """No element."""

    def mismatch(self, actual: list[Any]) -> str | None:
        if not actual:
            return None
        return "\n".join([f"expected no element, found {len(actual)}", *_listed("unexpected", "found", actual, [])])


@dataclass(frozen=True, slots=True)
class IsNotEmpty(Matcher):
    """At least one element."""

    def mismatch(self, actual: list[Any]) -> str | None:
        return None if actual else "expected at least one element, found none"


@dataclass(frozen=True, slots=True)
class Matches(Matcher):
    """As many elements as conditions, and each condition holds for a different element."""

    conditions: tuple[Any, ...]

    def mismatch(self, actual: list[Any]) -> str | None:
        unmet, left = _matched(self.conditions, actual, _holds)
        if not unmet and not left:
            return None
        conditions = [_Described(condition) for condition in unmet]
        lines = [f"found {_count(actual)} for {_count(self.conditions, 'condition')}"]
        lines += _listed("unmet", "holds for none of the remaining elements", conditions, [])
        lines += _listed("unmatched", "found, and meets none of the remaining conditions", left, [])
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Each(Matcher):
    """A condition that holds for every element."""

    condition: Any

    def mismatch(self, actual: list[Any]) -> str | None:
        failing = [value for value in actual if not _holds(self.condition, value)]
        if not failing:
            return None
        what = f"{_Described(self.condition)!r} does not hold for {len(failing)} of {_count(actual)}"
        return "\n".join([what, *_listed("failing", "found", failing, [])])


@dataclass(frozen=True, slots=True)
class Satisfies(Matcher):
    """A function of the list of all elements, which fails by raising AssertionError or returning False."""

    check: Callable[[list[Any]], Any]

    def mismatch(self, actual: list[Any]) -> str | None:
        try:
            verdict = self.check(list(actual))
        except AssertionError as error:
            what = str(error) or f"{_Described(self.check)!r} raised AssertionError"
        else:
            if verdict is None or verdict is True:
                return None
            what = f"{_Described(self.check)!r} returned {shorten(verdict)}; it should return True or None, or raise"
        return "\n".join([what, f"found {_count(actual)}:", *_lines(actual, [])])


def equal_to(expected: Iterable[Any]) -> Matcher:
    """Exactly these elements, in any order."""
    return EqualTo(_elements("equal_to", expected))


def equal_to_per_window(expected: Mapping[Any, Iterable[Any]]) -> Matcher:
    """Exactly these elements in each window, in any order, and none in others. `(start, end)` stands for a window."""
    if not isinstance(expected, Mapping):
        raise BuildError(f"equal_to_per_window takes a dict from window to elements, not {shorten(expected)}")
    return EqualToPerWindow(
        tuple((as_window(window), _elements("equal_to_per_window", values)) for window, values in expected.items())
    )


def contains(*expected: Any) -> Matcher:
    """At least these elements."""
    if not expected:
        raise BuildError("contains() would hold for anything: name an element, or use is_not_empty()")
    return Contains(expected)


def is_empty() -> Matcher:
    """No element."""
    return IsEmpty()


def is_not_empty() -> Matcher:
    """At least one element."""
    return IsNotEmpty()


def matches(*conditions: Any) -> Matcher:
    """As many elements as conditions, and each condition holds for a different element, in any order.

    A condition is a predicate, an object with a method `matches` (such as PyHamcrest's matchers), or a value.
    """
    return Matches(conditions)


def each(condition: Any) -> Matcher:
    """A condition, of the kinds that `matches` accepts, that holds for every element."""
    return Each(condition)


def as_matcher(matcher: Any) -> Matcher:
    """Convert a function of all elements, or a PyHamcrest matcher of the list of them, to a Matcher."""
    match matcher:
        case Matcher():
            return matcher
        case type() if issubclass(matcher, Matcher):
            pass
        case _ if hasattr(matcher, "matches") and hasattr(matcher, "describe_to"):
            return Satisfies(lambda values: _hamcrest(matcher, values))
        case _ if callable(matcher):
            return Satisfies(matcher)
    raise BuildError(
        f"assert_that takes a matcher, such as equal_to([1, 2]), or a function of the elements, not {shorten(matcher)}"
    )


# ---- pairing expected elements with actual ones


def difference(expected: Sequence[Any], actual: list[Any]) -> str | None:
    """Describe the difference between two bags of elements; None if they are equal."""
    missing, unexpected = pair_up(expected, actual)
    if not missing and not unexpected:
        return None
    matching = len(expected) - len(missing)
    lines = [f"expected {_count(expected)}, found {len(actual)}, {matching} matching"]
    lines += _listed("missing", "expected, not found", missing, unexpected)
    lines += _listed("unexpected", "found, not expected", unexpected, missing)
    return "\n".join(lines + _hints(missing, unexpected))


def pair_up(expected: Iterable[Any], actual: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    """Pair equal expected and actual elements; return the expected and the actual elements that remain.

    Equal hashables are paired by hash, then others by repr. Since a pattern may equal several elements, a maximum
    matching pairs the rest, which leaves as few as possible.
    """
    missing, unexpected = _by_key(expected, actual, lambda value: value)
    missing, unexpected = _by_key(missing, unexpected, shorten)
    return _matched(missing, unexpected, same)


def _by_key(expected: Iterable[Any], actual: Iterable[Any], key: Callable[[Any], Any]) -> tuple[list[Any], list[Any]]:
    unpaired: dict[Hashable, list[int]] = {}
    wanted = list(expected)
    for position, value in enumerate(wanted):
        try:
            unpaired.setdefault(key(value), []).append(position)
        except TypeError:
            continue
    paired: set[int] = set()
    left = []
    for value in actual:
        try:
            positions = unpaired.get(key(value), [])
        except TypeError:
            positions = []
        found = next((position for position in positions if same(wanted[position], value)), None)
        if found is None:
            left.append(value)
        else:
            positions.remove(found)
            paired.add(found)
    return [value for position, value in enumerate(wanted) if position not in paired], left


def _matched(
    wanted: Sequence[Any], actual: Sequence[Any], agrees: Callable[[Any, Any], bool]
) -> tuple[list[Any], list[Any]]:
    """Find a maximum matching (by Kuhn's augmenting paths); return the unmatched items of either side."""
    edges = [[j for j, value in enumerate(actual) if agrees(want, value)] for want in wanted]
    owner: dict[int, int] = {}

    def place(start: int) -> bool:
        """Find an augmenting path from `start`, without recursion, which long lists of patterns would exhaust."""
        path: list[tuple[int, Iterator[int]]] = [(start, iter(edges[start]))]
        steps: list[int] = []
        seen: set[int] = set()
        while path:
            j = next((j for j in path[-1][1] if j not in seen), None)
            if j is None:
                path.pop()
                if steps:
                    steps.pop()
                continue
            seen.add(j)
            steps.append(j)
            if j not in owner:
                for (i, _), step in zip(path, steps, strict=True):
                    owner[step] = i
                return True
            path.append((owner[j], iter(edges[owner[j]])))
        return False

    unplaced = [want for i, want in enumerate(wanted) if not place(i)]
    return unplaced, [value for j, value in enumerate(actual) if j not in owner]


# ---- messages


class _Described:
    """A condition whose repr describes it in a message."""

    def __init__(self, condition: Any) -> None:
        self.condition = condition

    def __repr__(self) -> str:
        condition = self.condition
        code = getattr(condition, "__code__", None)
        if code is not None:
            return f"{condition.__qualname__.rpartition('<locals>.')[2]} ({code.co_filename}:{code.co_firstlineno})"
        return str(condition) if hasattr(condition, "describe_to") else shorten(condition)


def _listed(title: str, meaning: str, values: Sequence[Any], against: Sequence[Any]) -> list[str]:
    return [f"{title} ({meaning}):", *_lines(values, against)] if values else []


def _lines(values: Sequence[Any], against: Sequence[Any]) -> list[str]:
    """A line for each value, with a count of repetitions, and with its type if a value in `against` looks the same."""
    reprs = {shorten(value, 300) for value in against}
    texts = []
    for value in values:
        text = shorten(value, 300)
        texts.append(f"{text}   {_types(value)}" if text in reprs else text)
    lines = []
    for text, run in groupby(texts):
        times = sum(1 for _ in run)
        lines.append(f"  {text}" + (f"   ({times} times)" if times > 1 else ""))
    more = len(lines) - LINES
    return lines if more <= 0 else [*lines[:LINES], f"  … and {more} more"]


def _types(value: Any, depth: int = 0) -> str:
    """The type of a value, and of the items of a tuple or list."""
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    if kind in (tuple, list) and depth < 3:
        return f"{name}[{', '.join(_types(item, depth + 1) for item in value[:8])}]"
    return name


def _hints(missing: list[Any], unexpected: list[Any]) -> list[str]:
    """Differences that are easily overlooked."""
    by_key = dict(filter(None, map(_pair, unexpected)))
    for wanted in missing:
        pair = _pair(wanted)
        if pair is not None and pair[0] in by_key:
            hint = _hint_for(pair[1], by_key[pair[0]])
        else:
            hint = next((hint for value in unexpected[:LINES] if (hint := _hint_for(wanted, value))), None)
        if hint:
            return [f"hint: {hint}"]
    return []


def _hint_for(wanted: Any, found: Any) -> str | None:
    match wanted, found:
        case ((float() | int()), (float() | int())):
            import math

            if wanted != found and math.isclose(wanted, found, rel_tol=1e-9, abs_tol=1e-12):
                return f"{found!r} and {wanted!r} differ only by rounding: expect pytest.approx({wanted!r})"
        case ((list() | tuple()), (list() | tuple())):
            if len(wanted) == len(found) and len(wanted) > 1 and list(wanted) != list(found):
                left = pair_up(wanted, found)
                if not left[0] and not left[1]:
                    return f"{shorten(found, 60)} has the items of {shorten(wanted, 60)} in another order: sort both"
            if type(wanted) is not type(found) and list(wanted) == list(found):
                return f"a {type(found).__name__} is never equal to a {type(wanted).__name__}"
    return None


def _pair(value: Any) -> tuple[Any, Any] | None:
    """Key and value of a pair whose key can be looked up."""
    if type(value) is not tuple or len(value) != 2:
        return None
    try:
        hash(value[0])
    except TypeError:
        return None
    return value[0], value[1]


def _holds(condition: Any, value: Any) -> bool:
    """True if a condition holds for an element. A predicate that raises (one for strings, of a number) doesn't hold."""
    method = getattr(condition, "matches", None)
    try:
        if callable(method):
            return bool(method(value))
        if callable(condition) and not isinstance(condition, type):
            return bool(condition(value))
    except Exception:
        return False
    return same(condition, value)


def _hamcrest(matcher: Any, values: list[Any]) -> bool:
    if matcher.matches(values):
        return True
    raise AssertionError(f"expected: {matcher}")


def _elements(owner: str, expected: Any) -> tuple[Any, ...]:
    match expected:
        case str() | bytes():
            raise BuildError(
                f"{owner} takes the expected elements, not one {type(expected).__name__}: put it in a list"
            )
        case Counter():
            return tuple(expected.elements())
        case Mapping():
            return tuple(expected.items())
        case Iterable():
            return tuple(expected)
    raise BuildError(f"{owner} takes an iterable of the expected elements, not {shorten(expected)}")


def _count(values: Sequence[Any], noun: str = "element") -> str:
    return counted(len(values), noun)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))
