"""`--checks all`: tries an author's CombineFn with its inputs divided in other ways, and compares the results.

Other runners combine in parts and merge the accumulators; the result must not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from tidegate.runners.engine.errors.attribution import UserCall, combiner_method, located, rethrow, user_error
from tidegate.runners.engine.operator import Context
from tidegate.runners.plan import Phase
from tidegate.sdk.authoring.combine import CombineFn, WithArguments
from tidegate.sdk.errors import CheckError, shorten
from tidegate.sdk.metrics import MetricCells, collecting
from tidegate.sdk.portable.model import CombinePerKey, GroupByKey
from tidegate.sdk.user_code.frames import author_frames

_MAX_INPUTS: Final = 200
"""Keys with more inputs are not tried."""


class Trials:
    """Records the inputs of each key, and compares the results of combining them at once and in parts."""

    def __init__(self, combiner: CombineFn[Any, Any, Any]) -> None:
        self.combiner = combiner
        self._inputs: dict[Any, list[Any]] = {}

    def add_input(self, key: Any, value: Any) -> None:
        """Record one input of a key."""
        _record(self._inputs.setdefault(key, []), (value,))

    def check(self, chunk: list[tuple[Any, Any]], node: GroupByKey | CombinePerKey) -> None:
        """Raise CheckError if the inputs of one of these keys give another result when they are combined in parts."""
        for key, _ in chunk:
            inputs = self._inputs.pop(key, [])
            try:
                _try(self.combiner, inputs, "" if key is None else f" of key {shorten(key, 40)}")
            except CheckError as error:
                raise located(error, node.label, node.where) from None
            except UserCall as error:
                rethrow(user_error(error.__cause__ or error, step=node.label, where=node.where, method=str(error)))


class Tried(CombineFn[Any, "Trial", Any]):
    """Wraps a combiner so that accumulators record their inputs, which are tried in parts for every result.

    So a combiner is tried even if its accumulators go through triggers, merged windows and snapshots.
    """

    def __init__(self, inner: CombineFn[Any, Any, Any]) -> None:
        self.inner = inner
        self.has_identity = inner.has_identity  # type: ignore[misc]
        self.in_parts = inner.in_parts  # type: ignore[misc]

    def create_accumulator(self) -> Trial:
        return Trial(self.inner.create_accumulator(), [])

    def add_input(self, accumulator: Trial, element: Any) -> Trial:
        accumulator.held = self.inner.add_input(accumulator.held, element)
        _record(accumulator.inputs, (element,))
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Trial]) -> Trial:
        parts = list(accumulators)
        inputs: list[Any] = []
        for part in parts:
            _record(inputs, part.inputs)
        return Trial(self.inner.merge_accumulators([part.held for part in parts]), inputs)

    def extract_output(self, accumulator: Trial) -> Any:
        """The result. Raises CheckError if combining the inputs in parts gives another one."""
        _try(self.inner, accumulator.inputs)
        return self.inner.extract_output(accumulator.held)


class Trial:
    """An accumulator (`held`) and its inputs; once there are too many to be tried, no more are recorded."""

    __slots__ = ("held", "inputs")

    def __init__(self, held: Any, inputs: list[Any]) -> None:
        self.held = held
        self.inputs = inputs


def trials_of(combiner: CombineFn[Any, Any, Any] | None, phase: Phase, context: Context) -> Trials | None:
    """Trials for a combiner, or None if it is not to be tried."""
    return Trials(combiner) if combiner is not None and is_tried(combiner, phase, context) else None


def is_tried(combiner: CombineFn[Any, Any, Any] | None, phase: Phase, context: Context) -> bool:
    """Whether `--checks all` is set and the combiner is the author's and declares that it can combine in parts."""
    if combiner is None or context.checks is None or context.checks.mode != "all" or phase != "whole":
        return False
    inner = combiner.inner if isinstance(combiner, WithArguments) else combiner
    return combiner.in_parts and not type(inner).__module__.startswith("tidegate.")


def _record(inputs: list[Any], more: Iterable[Any]) -> None:
    if len(inputs) <= _MAX_INPUTS:
        inputs.extend(more)


def _try(combiner: CombineFn[Any, Any, Any], inputs: list[Any], of_key: str = "") -> None:
    if not 1 < len(inputs) <= _MAX_INPUTS:
        return
    expected = _combined(combiner, [inputs])
    for parts in (_halves(inputs), [[value] for value in inputs], [[], inputs]):
        result = _combined(combiner, parts)
        if not _same(result, expected):
            inner = combiner.inner if isinstance(combiner, WithArguments) else combiner
            raise CheckError(
                f"{type(inner).__name__} returns {shorten(expected, 60)} for {len(inputs)} inputs{of_key} combined at "
                f"once, but {shorten(result, 60)} when they are combined in {len(parts)} parts and merged: other "
                "runners combine in parts, so both must agree"
            )


def _combined(combiner: CombineFn[Any, Any, Any], parts: list[list[Any]]) -> Any:
    """The result of combining in these parts. Metrics that the author's code updates here are discarded."""
    with collecting(MetricCells()):
        try:
            accumulators = []
            for part in parts:
                accumulator = combiner.create_accumulator()
                for value in part:
                    accumulator = combiner.add_input(accumulator, value)
                accumulators.append(combiner.compact(accumulator))
            merged = combiner.merge_accumulators(accumulators) if len(accumulators) > 1 else accumulators[0]
            return combiner.extract_output(merged)
        except Exception as error:
            trace = author_frames(error.__traceback__)
            method = trace.tb_frame.f_code.co_name if trace is not None else ""
            raise UserCall(combiner_method(combiner, method)) from error


def _halves(inputs: list[Any]) -> list[list[Any]]:
    middle = len(inputs) // 2
    return [inputs[:middle], inputs[middle:]]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        import math

        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) or (a != a and b != b)
    if isinstance(a, (tuple, list)) and type(a) is type(b) and len(a) == len(b):
        return all(_same(x, y) for x, y in zip(a, b, strict=True))
    try:
        return bool(a == b)
    except Exception:
        return True
