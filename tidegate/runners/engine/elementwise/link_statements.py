"""The statements of a loop that run one step: the call or the text of its function, and what its results go through."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Final, TypeAlias

from tidegate.runners.engine.elementwise.fused_node import Link, call_arguments, in_position
from tidegate.runners.engine.elementwise.loop_builder import (
    BREAK,
    FLUSH_WHEN_FULL,
    NEXT,
    SPLIT_WHEN_FULL,
    LoopBuilder,
    flushing,
)
from tidegate.runners.engine.elementwise.shape import Fold
from tidegate.runners.engine.elementwise.wrapped_results import (
    guarded,
    needs_guard,
    no_kinds,
    sets_time,
    stamped,
    tagged,
)
from tidegate.runners.engine.loops.bodies.statements import YIELDED, only_yields_pairs
from tidegate.runners.engine.loops.form import (
    Assign,
    At,
    Block,
    Building,
    Do,
    Emit,
    Loop,
    Run,
    Statement,
    Statements,
    Test,
    Try,
    built,
)
from tidegate.runners.engine.loops.inlined_body import InlinedBody
from tidegate.runners.engine.loops.inlined_statements import Before, arguments, forgetting, result_of
from tidegate.sdk.portable.model import ParDo

Following: TypeAlias = Callable[[str], Building]
"""The statements that follow a step for each of its results, given the expression of the result.

That is the variable given to the step, unless the expression can be evaluated once, in the next statement.
"""

_SEVERAL: Final = (ast.Tuple, ast.List, ast.ListComp)
"""Expressions of several results: neither None nor anything that a step refuses to iterate over."""


def no_types(w: LoopBuilder) -> Iterator[Statement]:
    """What begins a loop: for each link whose results are tested, no type is known yet that passes the test."""
    yield from no_kinds(w)
    for k, link in enumerate(w.links):
        if _may_be_one_value(w, k, link):
            yield Assign(f"several{k}", "None")


def run_link(w: LoopBuilder, k: int, element: str, result: str, following: Following) -> Building:
    """Run link `k` on `element`, assign each of its results to `result`, and do what follows."""
    link, body, at = w.links[k], w.inlined.get(k), (k, element)
    checked = w.shape.checked
    if checked:
        yield Assign(f"s{k}", f"snapshot({element})")
    if link.catches:
        yield from _caught(w, at, link, result, following)
    elif body is not None and (body.yields or sets_time(w, k, link) or _only_item(w, link, body) is not None):
        yield from _inlined(w, at, link, result, following)
    elif link.form == "filter":
        yield from _filtered(w, at, link)
        yield from _with_result(w, at, link, result, following)
    elif link.flat:
        yield from _several(w, at, link, result, following)
    else:
        call = yield from _call(w, at, link, result)
        if body is not None and body.tagging:
            yield tagged(w, k, link, result)
        if call != result and k == len(w.links) - 1 and k not in w.counted and _emits_directly(w, link):
            result, w.emits = call, at
        elif call != result:
            yield Assign(result, call, at)
        elif k == len(w.links) - 1 and k not in w.counted and _emits_directly(w, link):
            w.held = result
        yield from _checks(w, at, result)
        yield from _with_result(w, at, link, result, following)


def emitting(w: LoopBuilder, result: str) -> Iterator[Statement]:
    """Append a result of the last link to the columns of a block."""
    yield Do(f"out.append({result})", w.emits)
    if w.carries_time:
        yield Do(f"out_t.append({w.time})")
    if w.windows:
        yield Do(f"out_w.append({w.windows})")
    if w.shape.indexed:
        yield Do("out_i.append(i)")
    if w.loops_over_windows or any(_emits_several(w, k, link) for k, link in enumerate(w.links)):
        yield flushing(w, FLUSH_WHEN_FULL)
    else:
        # A plain step's results are in memory already: it is enough to check the size after each of its inputs.
        w.flushed_after = w.results_of


def _with_result(w: LoopBuilder, at: At, link: Link, result: str, following: Following) -> Building:
    """What is done with a result before the statements that follow, and these."""
    k, _ = at
    if needs_guard(w, k, link):
        yield from guarded(w, at, link, result)
    if w.shape.typed and link.hint is not None:
        yield Do(f"typed({k}, {result})")
    if k in w.counted:
        yield Assign(f"n{k}", "1", adds=True)
    yield following(result)


def _each_result(w: LoopBuilder, at: At, link: Link, result: str, following: Following) -> Statement:
    w.skip = NEXT
    return Loop(result, f"r{at[0]}", built(_with_result(w, at, link, result, following)), at)


def _emits_several(w: LoopBuilder, k: int, link: Link) -> bool:
    """True if a link may emit results one by one, and more than one for an element."""
    if not link.flat or not (link.guarded or link.catches):
        return False
    return link.catches or w.shape.checked or k not in w.inlined or w.inlined[k].only_item is None


def _emits_directly(w: LoopBuilder, link: Link) -> bool:
    """True if the last link's result can go into the block without any check."""
    return w.fold is None and not (link.guarded or w.shape.checked or w.shape.typed)


def _only_item(w: LoopBuilder, link: Link, body: InlinedBody) -> ast.expr | None:
    """The only result of a link that returns a display of it, of which nothing else is made."""
    return body.only_item if link.flat and not (body.yields or w.shape.checked) else None


def _call(w: LoopBuilder, at: At, link: Link, result: str) -> Before[str]:
    """The expression of a link's call, or `result` if the statements before assign it."""
    k, element = at
    if k in w.inlined:
        names = yield from _arguments(w, at)
        return (yield from result_of(w.bodies, at, w.inlined[k], names, result))
    items = [f"*{element}"] if link.form in ("map_tuple", "flat_map_tuple") else []
    params = link.params if items else in_position(link.fn, link.params)
    return f"f{k}({call_arguments(params, lambda param: w.argument(k, param, element), items)})"


def _arguments(w: LoopBuilder, at: At) -> Before[dict[str, str]]:
    """Assign the arguments of an inlined link."""
    k, element = at
    body = w.inlined[k]
    fits = bool(body.items) and _is_tuple(w, k, element, len(body.items))
    return (yield from arguments(at, body, lambda param: w.argument(k, param, element), fits=fits))


def _is_tuple(w: LoopBuilder, k: int, element: str, size: int) -> bool:
    """Whether the element of link `k` is certainly a tuple of that size, because the text that makes it is one."""
    maker = next((j for j in range(k - 1, -1, -1) if element == f"v{j + 1}"), -1)
    if maker not in w.inlined:
        return False
    body = w.inlined[maker]
    one = body.only_item if w.links[maker].flat and not body.yields else body.expression
    return all(_has_items(made, size) for made in body.yielded or (one,))


def _has_items(made: ast.expr | None, size: int) -> bool:
    match made:
        case ast.Tuple(elts=items):
            return len(items) == size and not any(isinstance(item, ast.Starred) for item in items)
    return False


def _filtered(w: LoopBuilder, at: At, link: Link) -> Building:
    """A call that says whether the element stays."""
    k, _ = at
    body, result, checked = w.inlined.get(k), f"r{k}", w.shape.checked
    call = yield from _call(w, at, link, result)
    condition = "" if checked or call == result else _untrue(call, body)
    if condition:
        yield Test(condition, w.skip, at=at)
        return
    if call != result:
        yield Assign(result, call, at)
    yield from _checks(w, at)
    forgotten = () if checked or body is None or body.gives_bool else (Assign(result, "None"),)
    yield Test(f"not {result}", (*forgotten, *w.skip), at=at)
    yield from forgotten


def _untrue(call: str, body: InlinedBody | None) -> str:
    """The condition that a result is not true; "" if the expression of it has to be evaluated before it is tested."""
    if body is None or body.testable:
        return f"not {call}"
    return f"{call} is False" if body.gives_bool else ""


def _several(w: LoopBuilder, at: At, link: Link, result: str, following: Following) -> Building:
    """A call that returns several results."""
    k, element = at
    checked = w.shape.checked
    call = yield from _call(w, at, link, f"r{k}")
    if call != f"r{k}":
        yield Assign(f"r{k}", call, at)
    if _may_be_one_value(w, k, link):
        yield Test(f"r{k} is None", (Assign(f"r{k}", "()"),) if checked else w.skip)
        yield _refused(at, f"r{k}")
    if checked:
        yield Assign(f"r{k}", f"checked_results({k}, r{k}, s{k}, {element})")
    elif k == len(w.links) - 1 and _emits_directly(w, link) and not (w.carries_time or w.windows or w.shape.indexed):
        yield Assign("out", f"r{k}", at, adds=True)
        yield SPLIT_WHEN_FULL
        return
    if not link.guarded and isinstance(link.fn, FunctionType):
        w.few_results = True
    elif not link.guarded:
        w.results_of = k
    yield _each_result(w, at, link, result, following)
    if w.flushed_after == k:
        yield flushing(w, SPLIT_WHEN_FULL)


def _may_be_one_value(w: LoopBuilder, k: int, link: Link) -> bool:
    """True if what a link returns as its results may be one value, such as a str, which would be taken apart."""
    if k not in w.inlined:
        return link.flat
    return link.flat and not (w.inlined[k].yields or isinstance(w.inlined[k].expression, _SEVERAL))


def _refused(at: At, results: str) -> Statement:
    """Refuse results that are one value. A type is looked up only if the last element's results had another one."""
    refused = Test(f"type({results}) in NOT_SEVERAL", (Do(f"refuse_results({results})", at),), at=at)
    seen = f"several{at[0]}"
    return Test(f"type({results}) is not {seen}", (refused, Assign(seen, f"type({results})")), at=at)


def _inlined(w: LoopBuilder, at: At, link: Link, result: str, following: Following) -> Building:
    """A body that yields, or that sets the timestamp of its result, or of which only the item of a display is made."""
    k, element = at
    body = w.inlined[k]
    names = yield from _arguments(w, at)

    def yielded() -> Building:
        if sets_time(w, k, link):
            yield from stamped(w, at, link, body, names, result)
        else:
            if not body.yielded:
                part, of = ("", body.expression) if body.yields else ("_item", body.only_item)
                yield Assign(result, w.bodies.expression(at, body, names, part, of), at)
            if not body.yields:
                yield from forgetting(k, body)
            elif w.shape.checked:
                yield Assign(f"m{k}", "1", adds=True)
                yield Do(f"track_next({k}, m{k}, {result}, {element})")
        yield from _with_result(w, at, link, result, following)

    if not body.yields:
        if body.first:
            yield w.bodies.statements(at, body, names, "")
        yield from yielded()
        return
    if w.shape.checked:
        yield Assign(f"m{k}", "0")
    w.skip = BREAK
    taken = (Assign(result, YIELDED, at),) if body.yielded else ()
    counted = _repeated(w, k, link, body)
    yield w.bodies.statements(at, body, names, "", *taken, Block(built(yielded())), repeated=counted)
    yield from forgetting(k, body)
    if w.shape.checked:
        yield Do(f"unchanged({k}, s{k}, {element})", at)
        yield Do(f"verify_tracked({k})", at)


def _caught(w: LoopBuilder, at: At, link: Link, result: str, following: Following) -> Building:
    """A call whose exceptions become dead letters."""
    k, element = at
    partial = isinstance(link.node, ParDo) and link.node.dead_letters is not None and link.node.dead_letters.partial
    made = result if link.form in ("map", "map_tuple") else f"r{k}"
    dead_letter = Emit(f"dead_letter({element}, error{k}, {w.context(k)})", several=True)
    forgotten = forgetting(k, w.inlined[k]) if k in w.inlined else ()
    left = () if link.flat and partial else w.skip
    yield Assign(f"calls[{k}]", "1", adds=True)
    if link.flat:
        yield Assign(f"r{k}", "[]")
        yield Assign(f"i{k}", "None")
    body = tuple(_tried(w, at, link, made))
    yield Try(body, f"catch{k} as error{k}", (dead_letter, *forgotten, *left))
    yield from _checks(w, at, result if made == result else "")
    if link.flat:
        if w.shape.checked:
            yield Do(f"verify_tracked({k})")
        if _may_be_one_value(w, k, link):
            yield _refused(at, f"i{k}")  # not in the `try`, where it would become a dead letter
        yield _each_result(w, at, link, result, following)
    else:
        if link.form == "filter":
            yield Test(f"not r{k}", w.skip)
        yield from _with_result(w, at, link, result, following)


def _tried(w: LoopBuilder, at: At, link: Link, made: str) -> Iterator[Statement]:
    k, element = at
    assigned = f"i{k}" if link.flat else made
    call = yield from _call(w, at, link, assigned)
    if call != assigned:
        yield Assign(assigned, call, at)
    if link.flat:
        results = f"track({k}, i{k}, {element})" if w.shape.checked else f"i{k}"
        yield Test(f"i{k} is not None", (Do(f"r{k}.extend({results})", at),))


def _checks(w: LoopBuilder, at: At, result: str = "") -> Iterator[Statement]:
    if w.shape.checked:
        k, element = at
        yield Do(f"unchanged({k}, s{k}, {element})")
        if result:
            yield Do(f"track_result({k}, {result}, {element})")


# -- results that are added to a table


def accounted(w: LoopBuilder, fold: Fold, at: At) -> Statement:
    """Account for the elements that have been added, if they are many. The tables may be spilled then, so that others
    are in their place."""
    counted = f"n{w.counted[-1]}"
    added = Emit(f"added({counted} - full + block_size)", at), Assign("full", f"{counted} + block_size")
    return Test(f"{counted} >= full", (*added, *fold.first_table()))


def _repeated(w: LoopBuilder, k: int, link: Link, body: InlinedBody) -> Statements:
    """What stands for the only loop of a body that does nothing but yield (see `statements.yielding`), if its results
    are added as they are to one table; () otherwise."""
    fold, loops = w.fold, [loop for part in body.first for loop in ast.walk(part) if isinstance(loop, ast.For)]
    if fold is None or not fold.plain or fold.windows in ("single", "multi"):
        return ()
    if k < len(w.links) - 1 or w.shape.checked or w.shape.typed or needs_guard(w, k, link):
        return ()
    if sum(only_yields_pairs(loop) is not None for loop in loops) != 1:
        return ()
    at, items = (k + 1, fold.key), f"items{k}"
    counted = Assign(f"n{k}", f"len({items})", adds=True)
    loop = Loop("_", items, (Assign(fold.key, YIELDED, (k, f"v{k}")), Run(at, fold.body)))
    forgotten = Assign(items, "None")  # the loop in a function lets go of them, too
    alone = f"references({items}) == ONE_REFERENCE and type({items}) in SIZED"
    return (
        Assign(items, YIELDED, (k, f"v{k}")),
        Test(f"{alone} or type({items}) in FIXED", (counted, loop, forgotten, accounted(w, fold, at)), (forgotten,)),
    )
