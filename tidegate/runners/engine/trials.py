"""`--checks all`: an author's CombineFn tried in other groupings, which other runners will use."""

from __future__ import annotations

from typing import Any, Final

from tidegate.runners.engine.blame import author_frames, combiner_method, located, rethrow, user_error
from tidegate.runners.engine.operator import Context
from tidegate.runners.plan import Phase
from tidegate.sdk.combine import CombineFn
from tidegate.sdk.errors import CheckError, shorten
from tidegate.sdk.metrics import MetricCells, collecting
from tidegate.sdk.portable.pipeline import CombinePerKey, GroupByKey

_MOST: Final = 200
"""How many inputs of a key are kept for trials; keys with more are not tried."""


class Trials:
    """Keeps the inputs of each key, and compares the result with those of the same inputs combined in parts."""

    def __init__(self, combiner: CombineFn[Any, Any, Any]) -> None:
        self.combiner = combiner
        self._inputs: dict[Any, list[Any]] = {}

    def witness(self, key: Any, value: Any) -> None:
        """One more input."""
        inputs = self._inputs.setdefault(key, [])
        if len(inputs) <= _MOST:
            inputs.append(value)

    def check(self, chunk: list[tuple[Any, Any]], node: GroupByKey | CombinePerKey) -> None:
        """Raise CheckError if a key's inputs, combined in parts, give another result than in one go."""
        for key, _ in chunk:
            inputs = self._inputs.pop(key, [])
            if not 1 < len(inputs) <= _MOST:
                continue
            whole = self._combined([inputs], node)
            for parts in (_halves(inputs), [[value] for value in inputs], [[], inputs]):
                result = self._combined(parts, node)
                if not _same(result, whole):
                    of_key = "" if key is None else f" of key {shorten(key, 40)}"
                    raise located(
                        CheckError(
                            f"{type(self.combiner).__name__} gives {shorten(whole, 60)} for {len(inputs)} inputs"
                            f"{of_key} in one go, and {shorten(result, 60)} when they are combined in {len(parts)} "
                            "parts and merged: other runners combine in parts, so both must agree"
                        ),
                        node.label,
                        node.where,
                    )

    def _combined(self, parts: list[list[Any]], node: GroupByKey | CombinePerKey) -> Any:
        """The result of combining in these parts. What the author's code counts meanwhile does not count."""
        with collecting(MetricCells()):
            try:
                return self._tried(parts)
            except Exception as error:
                trace = author_frames(error.__traceback__)
                method = combiner_method(self.combiner, trace.tb_frame.f_code.co_name if trace is not None else "")
                rethrow(user_error(error, step=node.label, where=node.where, method=method))

    def _tried(self, parts: list[list[Any]]) -> Any:
        combiner = self.combiner
        accumulators = []
        for part in parts:
            accumulator = combiner.create_accumulator()
            for value in part:
                accumulator = combiner.add_input(accumulator, value)
            accumulators.append(combiner.compact(accumulator))
        return combiner.extract_output(
            combiner.merge_accumulators(accumulators) if len(accumulators) > 1 else accumulators[0]
        )


def trials_of(combiner: CombineFn[Any, Any, Any] | None, phase: Phase, context: Context) -> Trials | None:
    """Trials for a combiner that is the author's own and promises to work in parts, where all is checked."""
    if combiner is None or context.checks is None or context.checks.mode != "all" or phase != "whole":
        return None
    own = not type(combiner).__module__.startswith("tidegate.")
    return Trials(combiner) if own and combiner.in_parts else None


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
