"""Links: element-wise nodes that are ready to run, with their functions loaded and their extra arguments bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidegate.sdk.authoring.dofn import DoFn, Param
from tidegate.sdk.errors import shorten
from tidegate.sdk.portable.model import AssignWindows, ParDo, Pipeline
from tidegate.sdk.typehints.compatibility import NOT_SEVERAL
from tidegate.sdk.user_code.frames import Where
from tidegate.sdk.windowing.assigners import element_dependent, is_global_assigner, may_give_none, may_give_several
from tidegate.sdk.windowing.assignment import assign, assign_windows
from tidegate.sdk.windowing.strategy import WindowingStrategy


@dataclass(frozen=True, slots=True)
class Link:
    """One step of a chain. `fn` is what is called per element; `dofn` the object whose life cycle goes with it.

    `windowing` is that of the collection the link makes; `hint` its element type (None: anything).
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

    @property
    def sees_window(self) -> bool:
        """Whether it is called once per element and window."""
        return isinstance(self.node, ParDo) and self.node.sees_window

    @property
    def looks_up_windows(self) -> bool:
        """Whether the windows it assigns must be found element by element, not derived from timestamps when needed."""
        return element_dependent(self.windowing.assigner) or may_give_none(self.windowing.assigner)

    @property
    def gives_several(self) -> bool:
        """Whether an element to which it gives windows may get more than one."""
        return may_give_several(self.windowing.assigner)

    @property
    def reassigns(self) -> bool:
        """Whether an element to which it gives a timestamp may get other windows for it."""
        return self.may_drop or not is_global_assigner(self.windowing.assigner)

    @property
    def may_drop(self) -> bool:
        """Whether it drops what its assigner has no window for."""
        return may_give_none(self.windowing.assigner) and (self.form == "assign" or self.guarded)

    @property
    def changes_count(self) -> bool:
        """Whether it may give more or fewer elements than it takes."""
        one_to_one = self.form in ("map", "map_tuple", "assign") and not self.may_drop
        return not one_to_one or self.sees_window or bool(self.catches)

    @property
    def flat(self) -> bool:
        """Whether one element may become many."""
        return self.form in ("flat_map", "flat_map_tuple", "process")


def load_link(node: ParDo | AssignWindows, pipeline: Pipeline) -> Link:
    """Unpickle a node's code. Raises whatever importing the author's modules raises."""
    made = pipeline.collection(node.output())
    match node:
        case AssignWindows():
            return Link(node, node.label, node.where, "assign", None, (), (), None, made.windowing, False)
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
                made.windowing,
                node.emits == "any",
                made.element_type.type.load() if made.element_type.type is not None else None,
                catches,
            )


def not_iterable(link: Link, element: Any, result: Any) -> TypeError | None:
    """What is wrong with an element, or with a function's result, that the loop could not iterate; None if nothing."""
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
    """From a timestamp, and the element where the assigner asks for it, to the windows that a link assigns."""
    assigner = link.windowing.assigner
    if element_dependent(assigner):
        return assign(assigner)
    return assign_windows(assigner)  # type: ignore[arg-type]


def not_several(results: Any) -> None:
    """Refuse what a step returned as its results and can't have meant so, such as a str."""
    raise TypeError(
        f"it returned the {type(results).__name__} {shorten(results, 60)}, and its elements are the items of what it "
        f"returns: {NOT_SEVERAL[type(results)]}"
    )


class NotSeveral:
    """The same where the step's exceptions are caught, and this one must not be: noted inside, looked at outside."""

    __slots__ = ("_noted",)

    def __init__(self) -> None:
        self._noted: Any = None

    def note(self, results: Any) -> Any:
        """The results."""
        if type(results) in NOT_SEVERAL:
            self._noted = results
        return results

    def look(self) -> None:
        """Refuse what was noted."""
        if self._noted is not None:
            noted, self._noted = self._noted, None
            not_several(noted)
