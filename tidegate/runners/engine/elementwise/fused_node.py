"""Links: element-wise nodes with their functions and extra arguments loaded, ready to run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidegate.runners.plan import nested_loops
from tidegate.sdk.authoring.dofn import DoFn, Param
from tidegate.sdk.errors import shorten
from tidegate.sdk.portable.model import FLAT_FORMS, AssignWindows, ParDo, Pipeline
from tidegate.sdk.relational.python.generated_functions import body_of_compiled
from tidegate.sdk.typehints.compatibility import NOT_SEVERAL
from tidegate.sdk.user_code.body import Body
from tidegate.sdk.user_code.frames import Where
from tidegate.sdk.windowing.assigners import element_dependent, is_global_assigner, may_give_none, may_give_several
from tidegate.sdk.windowing.assignment import assign, assign_windows
from tidegate.sdk.windowing.strategy import WindowingStrategy


@dataclass(frozen=True, slots=True)
class Link:
    """One step of a chain. `fn` is called per element; `dofn` is its DoFn, if it is a method of one.

    `windowing` is the windowing of the link's output, and `hint` its element type (None: any type). `guarded`: results
    may be wrapped values, such as TimestampedValues. `catches`: the exceptions that become dead letters.
    `body`: the text of `fn`, where it is known; `inner` is that of the last extra argument, which may be a function.
    """

    node: ParDo | AssignWindows
    label: str
    where: Where
    form: str
    fn: Callable[..., Any] | None
    params: tuple[Param, ...]
    consts: tuple[Any, ...]
    dofn: DoFn | None
    windowing: WindowingStrategy
    guarded: bool
    hint: Any = None
    catches: Any = None
    body: Body | None = None
    inner: Body | None = None

    @property
    def sees_window(self) -> bool:
        """True if it is called once per element and window."""
        return isinstance(self.node, ParDo) and self.node.sees_window

    @property
    def looks_up_windows(self) -> bool:
        """True if its windows must be looked up for each element, and cannot be derived from timestamps when needed."""
        return element_dependent(self.windowing.assigner) or may_give_none(self.windowing.assigner)

    @property
    def assigns_several(self) -> bool:
        """True if it may assign more than one window to an element."""
        return may_give_several(self.windowing.assigner)

    @property
    def reassigns(self) -> bool:
        """True if an element to which it gives a new timestamp may get other windows."""
        return self.may_drop or not is_global_assigner(self.windowing.assigner)

    @property
    def may_drop(self) -> bool:
        """True if it drops elements for which its assigner has no window."""
        return may_give_none(self.windowing.assigner) and (self.form == "assign" or self.guarded)

    @property
    def changes_count(self) -> bool:
        """True if it may emit more or fewer elements than it receives."""
        one_to_one = self.form in ("map", "map_tuple", "assign") and not self.may_drop
        return not one_to_one or self.sees_window or bool(self.catches)

    @property
    def flat(self) -> bool:
        """True if it may return several results for an element."""
        return self.form in FLAT_FORMS

    @property
    def loops(self) -> int:
        """How many loops it nests in a chain, if its function is called."""
        return nested_loops(self.node)


def load_link(node: ParDo | AssignWindows, pipeline: Pipeline) -> Link:
    """Unpickle a node's code. Raises whatever importing the author's modules raises."""
    output = pipeline.collection(node.output())
    match node:
        case AssignWindows():
            return Link(node, node.label, node.where, "assign", None, (), (), None, output.windowing, False)
        case ParDo():
            loaded = node.fn.load()
            dofn = loaded if isinstance(loaded, DoFn) else None
            catches = None
            if node.dead_letters is not None:
                caught = node.dead_letters.exc_class
                catches = Exception if caught is None else caught.load()
            return Link(
                node,
                node.label,
                node.where,
                node.form,
                dofn.process if dofn is not None else loaded,
                node.params,
                node.consts.load() if node.consts is not None else (),
                dofn,
                output.windowing,
                node.emits == "any",
                output.element_type.type.load() if output.element_type.type is not None else None,
                catches,
                node.fn.body or body_of_compiled(loaded),
                node.consts.body if node.consts is not None else None,
            )


def argument(k: int, param: Param, element: str, time: str, pane: str) -> str:
    """The expression of an argument of link `k` in a loop, given those of its element, its timestamp and its pane."""
    match param.kind:
        case "element":
            return element
        case "key":
            return f"{element}[0]"
        case "timestamp":
            return f"timestamp({time})"
        case "window":
            return f"w{k}"
        case "pane":
            return pane
        case "watermark":
            return "watermark()"
        case "clock":
            return "clock()"
        case "const":
            return f"c{k}_{param.ref}"
        case "round":
            return f"round{k}"
        case "side":
            return f"side{k}_{param.ref}(w{k})"
        case "state" | "timer" | "tag":
            raise AssertionError(f"a chain has no {param.kind} parameter")


def in_position(fn: object, params: tuple[Param, ...]) -> tuple[Param, ...]:
    """The parameters, of which as many as the function's order allows are passed by position, which is faster."""
    method = getattr(fn, "__func__", None)
    code = getattr(method or fn, "__code__", None)
    if code is None:
        return params
    names = code.co_varnames[method is not None : code.co_argcount]
    placed = [param for param in params if param.keyword is None]
    by_name = {param.keyword: param for param in params if param.keyword is not None}
    while len(placed) < len(names) and names[len(placed)] in by_name:
        placed.append(replace(by_name.pop(names[len(placed)]), keyword=None))
    return (*placed, *by_name.values())


def call_arguments(params: Iterable[Param], expression: Callable[[Param], str], first: Sequence[str] = ()) -> str:
    """The text of the arguments of a call."""
    return ", ".join(
        [*first, *(f"{each.keyword}={expression(each)}" if each.keyword else expression(each) for each in params)]
    )


def not_iterable(link: Link, element: Any, result: Any) -> TypeError | None:
    """The error to raise if an element, or a function's result, could not be iterated; None if both can be."""
    if link.form.endswith("_tuple") and not hasattr(element, "__iter__"):
        return TypeError(
            f"this step's function takes the items of a tuple, and the element is {type(element).__name__}"
        )
    if link.flat and result is not None and not hasattr(result, "__iter__"):
        return TypeError(
            f"this step's function must return an iterable or None, and returned {shorten(result, 60)} "
            f"({type(result).__name__}); for one result per element use tg.Map"
        )
    return None


def assigning(link: Link) -> Callable[..., tuple[Any, ...]]:
    """The function from a timestamp, and the element if the assigner needs it, to the windows that a link assigns."""
    assigner = link.windowing.assigner
    if element_dependent(assigner):
        return assign(assigner)
    return assign_windows(assigner)  # type: ignore[arg-type]


def refuse_results(results: Any) -> None:
    """Raise TypeError for results that are iterable, but can't have been meant as several results, such as a str."""
    raise TypeError(
        f"it returned the {type(results).__name__} {shorten(results, 60)}, and its elements are the items of what it "
        f"returns: {NOT_SEVERAL[type(results)]}"
    )
