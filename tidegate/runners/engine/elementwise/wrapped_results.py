"""Unwraps results which are not plain values: TimestampedValues, TaggedOutputs, WindowedValues."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.runners.engine.elementwise.fused_node import Link
from tidegate.runners.engine.elementwise.loop_builder import AT, FLUSH, FLUSHED, LoopBuilder
from tidegate.runners.engine.loops.form import Assign, At, Do, Emit, Statement, Statements, Test
from tidegate.runners.engine.loops.inlined_body import InlinedBody
from tidegate.runners.engine.loops.inlined_statements import forgetting
from tidegate.sdk.portable.model import ParDo


def sets_time(w: LoopBuilder, k: int, link: Link) -> bool:
    """True if the link's function is inlined, and makes a TimestampedValue, which the loop need not make."""
    if w.shape.checked or link.catches or k not in w.shape.stamps or k not in w.inlined:
        return False
    return w.inlined[k].stamped is not None and (not link.flat or w.inlined[k].yields) and link.form != "filter"


def stamped(
    w: LoopBuilder, at: At, link: Link, body: InlinedBody, names: dict[str, str], result: str
) -> Iterator[Statement]:
    """Assign the value and the timestamp of a TimestampedValue. Its fast paths, for plain numbers and for datetimes of
    UTC, are in the loop."""
    k, _ = at
    made = body.stamped
    assert made is not None
    yield Assign(result, w.bodies.expression(at, body, names, "_value", made.value), at)
    yield Assign(f"t{k}", w.bodies.expression(at, body, names, "_time", made.timestamp), at)
    instant = Test(
        f"t{k}.__class__ is datetime and t{k}.tzinfo is UTC",
        (
            Assign(f"t{k}", f"t{k} - EPOCH"),
            Assign(f"t{k}", f"(t{k}.days * 86_400 + t{k}.seconds) * 1_000_000 + t{k}.microseconds"),
        ),
        (Assign(f"t{k}", f"micros{k}(t{k})", at),),
    )
    whole = Test(f"t{k}.__class__ is int and -9e12 < t{k} < 1e11", (Assign(f"t{k}", f"t{k} * 1_000_000"),), (instant,))
    seconds = (Assign(f"t{k}", f"(t{k} * 1e6).__round__()"),)
    yield Test(f"t{k}.__class__ is float and -9e12 < t{k} < 1e11", seconds, (whole,))
    if not body.yields:
        yield from forgetting(k, body)
    if not made.plain:
        refused = Emit(f"special(stamped({result}, t{k}), {w.context(k)})", at, several=True)
        yield Test(f"type({result}) in SPECIAL", (refused,), at=at)
    windows = _windows_before(w, link)
    w.time = f"t{k}"
    if windows:
        yield from _restamped(w, k, link, windows)


def _windows_before(w: LoopBuilder, link: Link) -> str:
    """The expression of the windows that an element has before it gets a new timestamp; "" if they are not needed."""
    looked_up = w.shape.windows == "each" or (w.shape.windows in ("one", "same") and link.reassigns)
    return w.element_windows() if not w.windows and w.derived < 0 and looked_up else w.windows


def _restamped(w: LoopBuilder, k: int, link: Link, windows: str) -> Iterator[Statement]:
    """Assign the windows that an element gets with its new timestamp."""
    w.in_several = w.in_several or link.assigns_several
    yield Assign(f"q{k}", f"restamped({k}, t{k}, {windows})")
    w.windows = f"q{k}"
    if link.may_drop:
        yield Test(f"not q{k}", w.skip)


def tagged(w: LoopBuilder, k: int, link: Link, result: str) -> Statement:
    """What happens to the value of a TaggedOutput that was not made. It is made if it leaves the loop."""
    buffered: Statements = ()
    if _buffers_tagged(w, k, link) and not w.shape.checked:
        append = Do(f"tagged[tag{k}].append({result})")
        buffered = (Test(f"tag{k} in tagged and type({result}) not in SPECIAL", (append, *w.skip)),)
    return Test(f"tag{k} is not None", (*buffered, Assign(result, f"TaggedOutput(tag{k}, {result})")))


def _buffers_tagged(w: LoopBuilder, k: int, link: Link) -> bool:
    """True if values of other outputs have the timestamp and windows of the block, which emits them at the end."""
    if not w.buffers_tagged or k < len(w.links) - 1 or w.fold is not None:
        return False
    if not isinstance(link.node, ParDo) or len(link.node.outputs) < 2:
        return False
    return not (w.shape.timed or w.shape.indexed or w.shape.stamps or w.windows or w.derived >= 0)


def needs_guard(w: LoopBuilder, k: int, link: Link) -> bool:
    """True if a result of the link may be a value that needs unwrapping."""
    return link.form != "filter" and link.guarded and not (sets_time(w, k, link) or _is_plain(w, k, link))


def no_kinds(w: LoopBuilder) -> Iterator[Statement]:
    """What begins a loop: for each guarded link, no type is known yet that needs no unwrapping."""
    for k, link in enumerate(w.links):
        if needs_guard(w, k, link) and k not in w.shape.stamps:
            yield Assign(f"kind{k}", "None")


def _is_plain(w: LoopBuilder, k: int, link: Link) -> bool:
    """True if the link's function is inlined, and none of its results can be a value that needs unwrapping."""
    if k not in w.inlined or k in w.shape.stamps or (link.flat and not w.inlined[k].yields):
        return False
    return w.inlined[k].plain


def guarded(w: LoopBuilder, at: At, link: Link, result: str) -> Iterator[Statement]:
    """Unwrap a result that is not a plain value. Rare kinds leave the loop by a side exit and come back.

    A type is looked up among those that need unwrapping only if the last result had another one.
    """
    k, _ = at
    if k not in w.shape.stamps:
        special = Test(f"type({result}) in SPECIAL", tuple(_leaves(w, at, link, result, w.windows)))
        yield Test(f"type({result}) is not kind{k}", (special, Assign(f"kind{k}", f"type({result})")))
        return
    time, windows = w.time, _windows_before(w, link)
    w.time = f"t{k}"
    unwrapped = (Assign(f"t{k}", f"{result}.micros"), Assign(result, f"{result}.value"))
    restamped = tuple(_restamped(w, k, link, windows)) if windows else ()
    kept = (Assign(f"t{k}", time), *((Assign(f"q{k}", windows),) if windows else ()))
    yield Test(
        f"type({result}) is TimestampedValue and type({result}.value) not in SPECIAL",
        (*unwrapped, *restamped),
        (Test(f"type({result}) in SPECIAL", tuple(_leaves(w, at, link, result, windows, time)), kept),),
    )


def _leaves(w: LoopBuilder, at: At, link: Link, result: str, windows: str, time: str = "") -> Iterator[Statement]:
    """What happens to a result that leaves the loop: it is emitted after those before it."""
    k, _ = at
    if _buffers_tagged(w, k, link):
        yield Test(
            f"type({result}) is TaggedOutput and {result}.tag in tagged and type({result}.value) not in SPECIAL",
            (Do(f"tagged[{result}.tag].append({result}.value)"), *w.skip),
        )
    if w.fold is None and w.shape.times_by_index:
        yield Test("out", (Assign("out_t", f"t[{AT} - len(out) : {AT}]"), *FLUSHED))
    elif w.fold is None:
        yield FLUSH
    yield Emit(f"special({result}, {w.context(k, windows, time)})", at, several=True)
    if w.fold is not None and w.adds_several:
        yield from w.fold.first_table()
    yield from w.skip
