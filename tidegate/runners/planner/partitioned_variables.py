"""Which loop variables are partitioned by key in all rounds: a fixed point.

If a variable that is partitioned by key at the beginning of a round is so at its end, only its start needs an exchange:

>>> import tidegate as tg
>>> p = tg.Pipeline()
>>> start = p | tg.Create([("a", 1)]).with_output_types(tuple[str, int])
>>> _ = start | tg.Iterate(lambda x: x | "add" >> tg.MapValues(lambda n: n + 1) | tg.CombinePerKey(sum), rounds=2)
>>> from tidegate.runners.planner.loops import body_of
>>> loop = p.portable().nodes[-1]
>>> body, _ = body_of(loop, p.portable())
>>> partitioned_variables(body, {"Iterate~before": loop.results})
frozenset({'Iterate~before'})
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.runners.planner import rules
from tidegate.runners.planner.rewrite import emitted_as
from tidegate.sdk.portable.model import CombinePerKey, Pipeline


def partitioned_variables(body: Pipeline, left: Mapping[str, Iterable[str]]) -> frozenset[str]:
    """The loop variables, as a round finds them, that are partitioned by key as each round finds and leaves them.

    `left` has, for each variable that rounds change, the collections that steps emit for it. Variables whose keys no
    step brings together are left out.
    """
    found = {before: tuple(parts) for before, parts in left.items() if _is_keyed(body, before)}
    while True:
        assumed = frozenset(found)
        kept = {
            before: parts
            for before, parts in found.items()
            if all(rules.partitioned_by_key(body, part, assumed) is not None for part in parts)
        }
        if kept == found:
            return assumed
        found = kept


def _is_keyed(body: Pipeline, before: str) -> bool:
    """Whether the elements are pairs, and a step brings equal keys together."""
    if not any(each.id == before and each.element_type.name.startswith("tuple[") for each in body.collections):
        return False
    return any(
        rules.partitioned_by_key(body, part, frozenset({before})) == before
        for node in body.nodes
        if rules.needs_key(node) and not (isinstance(node, CombinePerKey) and node.key != "first")
        for part in emitted_as(body, node.inputs[0])
    )
