"""Writes the lines that unwrap results which are not plain values: TimestampedValues, TaggedOutputs, WindowedValues."""

from __future__ import annotations

from tidegate.runners.engine.elementwise.fused_node import Link
from tidegate.runners.engine.elementwise.loop_writer import AT, LoopWriter
from tidegate.runners.engine.loops.inlined_lines import write_forgetting
from tidegate.runners.engine.loops.inlining import InlinedBody
from tidegate.sdk.portable.model import ParDo


def sets_time(w: LoopWriter, k: int, link: Link) -> bool:
    """True if the link's function is inlined, and makes a TimestampedValue, which the loop need not make."""
    if w.shape.checked or link.catches or k not in w.shape.stamps or k not in w.bodies:
        return False
    return w.bodies[k].stamped is not None and (not link.flat or w.bodies[k].yields) and link.form != "filter"


def write_stamped(
    w: LoopWriter, k: int, link: Link, body: InlinedBody, names: dict[str, str], element: str, result: str
) -> None:
    """Write the value and the timestamp of a TimestampedValue. Its fast paths for plain numbers are in the loop."""
    made = body.stamped
    assert made is not None
    w.put(f"{result} = {w.code.place(k, body, names, element, '_value', made.value)}", k, element)
    w.put(f"t{k} = {w.code.place(k, body, names, element, '_time', made.timestamp)}", k, element)
    w.put(f"if t{k}.__class__ is float and -9e12 < t{k} < 1e11: t{k} = (t{k} * 1e6).__round__()")
    w.put(f"elif t{k}.__class__ is int and -9e12 < t{k} < 1e11: t{k} = t{k} * 1_000_000")
    w.put(f"else: t{k} = micros{k}(t{k})", k, element)
    if not body.yields:
        write_forgetting(w.code, k, body)
    if not made.plain:
        at = f"at({k}, {w.time}, {w.windows or None}, {w.derived}, {w.index()}, block)"
        w.put(f"if type({result}) in SPECIAL: yield from special(stamped({result}, t{k}), {at})", k, element)
    windows = _windows_before(w, link)
    w.time = f"t{k}"
    if windows:
        _restamp(w, k, link, windows)


def _windows_before(w: LoopWriter, link: Link) -> str:
    """The expression of the windows that an element has before it gets a new timestamp; "" if they are not needed."""
    looked_up = w.shape.windows == "each" or (w.shape.windows in ("one", "same") and link.reassigns)
    return w.element_windows() if not w.windows and w.derived < 0 and looked_up else w.windows


def _restamp(w: LoopWriter, k: int, link: Link, windows: str, indent: str = "") -> None:
    """Write the windows that an element gets with its new timestamp."""
    w.in_several = w.in_several or link.assigns_several
    w.put(f"{indent}q{k} = restamped({k}, t{k}, {windows})")
    w.windows = f"q{k}"
    if link.may_drop:
        w.put(f"{indent}if not q{k}: {w.skip}")


def write_tagged(w: LoopWriter, k: int, link: Link, result: str) -> None:
    """Write what happens to the value of a TaggedOutput that was not made. It is made if it leaves the loop."""
    w.put(f"if tag{k} is not None:")
    with w.code.indented():
        if _buffers_tagged(w, k, link) and not w.shape.checked:
            w.put(f"if tag{k} in tagged and type({result}) not in SPECIAL:")
            w.put(f"    tagged[tag{k}].append({result})")
            w.put(f"    {w.skip}")
        w.put(f"{result} = TaggedOutput(tag{k}, {result})")


def _buffers_tagged(w: LoopWriter, k: int, link: Link) -> bool:
    """True if values of other outputs have the timestamp and windows of the block, which emits them at the end."""
    if not w.buffers_tagged or k < len(w.links) - 1 or w.fold is not None:
        return False
    if not isinstance(link.node, ParDo) or len(link.node.outputs) < 2:
        return False
    return not (w.shape.timed or w.shape.indexed or w.shape.stamps or w.windows or w.derived >= 0)


def needs_guard(w: LoopWriter, k: int, link: Link) -> bool:
    """True if a result of the link may be a value that needs unwrapping."""
    return link.form != "filter" and link.guarded and not (sets_time(w, k, link) or _is_plain(w, k, link))


def write_kinds(w: LoopWriter) -> None:
    """Write the lines that begin a loop: for each guarded link, no type is known yet that needs no unwrapping."""
    for k, link in enumerate(w.links):
        if needs_guard(w, k, link) and k not in w.shape.stamps:
            w.put(f"kind{k} = None")


def _is_plain(w: LoopWriter, k: int, link: Link) -> bool:
    """True if the link's function is inlined, and none of its results can be a value that needs unwrapping."""
    if k not in w.bodies or k in w.shape.stamps or (link.flat and not w.bodies[k].yields):
        return False
    return w.bodies[k].plain


def write_guard(w: LoopWriter, k: int, link: Link, element: str, result: str) -> None:
    """Unwrap a result that is not a plain value. Rare kinds leave the loop by a side exit and come back.

    A type is looked up among those that need unwrapping only if the last result had another one.
    """
    if k in w.shape.stamps:
        _write_guard(w, k, link, element, result)
        return
    w.put(f"if type({result}) is not kind{k}:")
    with w.code.indented():
        _write_guard(w, k, link, element, result)
        w.put(f"kind{k} = type({result})")


def _write_guard(w: LoopWriter, k: int, link: Link, element: str, result: str) -> None:
    time = w.time
    windows = w.windows
    if k in w.shape.stamps:
        windows = _windows_before(w, link)
        w.time = f"t{k}"
        w.put(f"if type({result}) is TimestampedValue and type({result}.value) not in SPECIAL:")
        w.put(f"    t{k} = {result}.micros; {result} = {result}.value")
        if windows:
            _restamp(w, k, link, windows, "    ")
        w.put(f"elif type({result}) in SPECIAL:")
    else:
        w.put(f"if type({result}) in SPECIAL:")
    if _buffers_tagged(w, k, link):
        w.put(
            f"    if type({result}) is TaggedOutput and {result}.tag in tagged and type({result}.value) not in SPECIAL:"
        )
        w.put(f"        tagged[{result}.tag].append({result}.value)")
        w.put(f"        {w.skip}")
    if w.fold is None:
        w.put("    if out:")
        if w.shape.times_by_index:
            w.put(f"        out_t = t[{AT} - len(out) : {AT}]")
        w.put("        yield pack(block, out, out_t, out_i, out_w)")
        w.put("        out = []; out_t = []; out_i = []; out_w = []")
    special = f"special({result}, at({k}, {time}, {windows or None}, {w.derived}, {w.index()}, block))"
    w.put(f"    yield from {special}", k, element)
    w.put(f"    {w.skip}")
    if k in w.shape.stamps:
        w.put("else:")
        w.put(f"    t{k} = {time}" + (f"; q{k} = {windows}" if windows else ""))
