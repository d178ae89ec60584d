"""Links: element-wise nodes made ready to run, their functions loaded and their extra arguments at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidegate.sdk.dofn import DoFn, Param
from tidegate.sdk.functions import Where
from tidegate.sdk.portable.pipeline import AssignWindows, ParDo, Pipeline
from tidegate.sdk.windowing import WindowingStrategy


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
