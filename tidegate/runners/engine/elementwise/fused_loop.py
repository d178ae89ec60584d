"""The runtime around generated loops over the author's functions: the life cycle of DoFns, errors, and counts.

A chain of element-wise steps has one, and so has a stateful step. Each chooses the loop that runs over a block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from sys import getrefcount
from typing import Any, Final

from tidegate.runners.engine.elementwise.counters import OutputCounters
from tidegate.runners.engine.elementwise.fused_node import Link, not_iterable, refuse_results
from tidegate.runners.engine.elementwise.result_checks import ResultChecks
from tidegate.runners.engine.elementwise.side_exits import ElementContext, SideExits
from tidegate.runners.engine.errors.attribution import close_all, guarded, guarded_items, located, rethrow, user_error
from tidegate.runners.engine.loops.compiled import CompiledLoops, LoopPosition
from tidegate.runners.engine.loops.form import Form
from tidegate.runners.engine.loops.inlined_body import as_called
from tidegate.runners.engine.loops.inlining import INLINED, Inlining
from tidegate.runners.engine.loops.loop_tree import prepared
from tidegate.runners.engine.operator import Context, Emitted
from tidegate.sdk.authoring.dofn import DoFn
from tidegate.sdk.data.block import Block, DerivedFrom, Each, WindowsColumn, take_panes, take_timestamps, take_windows
from tidegate.sdk.data.values import SPECIAL, TaggedOutput, WindowedValue
from tidegate.sdk.errors import RunError, TidegateError, shorten
from tidegate.sdk.portable.model import ParDo
from tidegate.sdk.time import EPOCH, MIN_MICROS, Timestamp
from tidegate.sdk.typehints.compatibility import NOT_SEVERAL
from tidegate.sdk.windowing.assigners import is_global_assigner

FIXED: Final = frozenset((tuple, frozenset, str, bytes))
"""Types whose items can be counted before they are iterated over. Those of a range may be more than a memory holds, so
that they have to be accounted for one by one."""

SIZED: Final = frozenset((list, dict, set)) | FIXED
"""Types whose items can be counted if nothing else refers to the object, so that nobody can change it meanwhile."""


def _one_reference() -> int:
    """What `getrefcount` returns for an object to which nothing but a variable refers, which depends on Python."""
    items: list[Any] = []
    return getrefcount(items)


ONE_REFERENCE: Final = _one_reference()


class FusedLoop:
    """The generated loops over some links, and the links' DoFns, checks, counters and side exits.

    `main` is the id of the last link's output collection; `exits` and `rest` are as for SideExits. `labels` are of
    the links, and what follows them in loops; `folds`: these end in the tables of a grouping. `environment` returns
    the names that the loops of this operator use beside those defined here. `attribute` returns the error to raise for
    one raised at a position outside the links, or None.
    """

    def __init__(
        self,
        links: tuple[Link, ...],
        context: Context,
        main: str,
        *,
        exits: Mapping[tuple[str, str], str],
        sides: Mapping[str, Callable[[Any], Any]],
        rest: Callable[[int, Block], Iterator[Emitted]],
        environment: Callable[[], dict[str, Any]],
        attribute: Callable[[BaseException, LoopPosition], BaseException | None],
        labels: Sequence[str],
        folds: bool = False,
    ) -> None:
        self.links = links
        self.context = context
        self.main = main
        self.counters = OutputCounters(links, folds=folds)
        self.generated = CompiledLoops()
        self.exits = SideExits(links, context, self.counters, exits, rest, self.generated.author_traceback, folds=folds)
        self.checks = ResultChecks(links, context)
        self._sides = sides
        self._owner_environment = environment
        self._attribute = attribute
        self._labels = labels
        self._variants: dict[Hashable, Callable[..., Iterator[Any]]] = {}
        self._elements_inlined: Counter[frozenset[int]] = Counter()
        self._started: list[Link] = []
        assigning = [link for link in links if link.form == "assign"]
        self.derived = DerivedFrom(assigning[-1].windowing.assigner) if assigning else None  # type: ignore[arg-type]
        """The windows of the last link's output, where a link assigns windows."""

    # -- the life cycle of the author's DoFns

    def open(self) -> None:
        """Call `setup`."""
        for link in self.links:
            if link.dofn is not None:
                self.context.life.set_up(link.label, partial(_set_up, link, link.dofn))

    def start_bundle(self) -> None:
        """Call `start_bundle`, unless a bundle has been started."""
        if self._started:
            return
        for link in self.links:
            if isinstance(link.node, ParDo) and link.node.bundle_hooks and link.dofn is not None:
                guarded(link.dofn.start_bundle, step=link.label, where=link.where, method="start_bundle")
                self._started.append(link)

    def finish_bundle(self) -> Iterator[Emitted]:
        """Call `finish_bundle`, and emit what it returns."""
        started, self._started = self._started, []
        for link in started:
            if link.dofn is not None:
                emitted = guarded(link.dofn.finish_bundle, step=link.label, where=link.where, method="finish_bundle")
                if emitted is not None:
                    yield from self._from_bundle(self.links.index(link), link, emitted)

    def close(self) -> None:
        """Call `teardown`."""
        self.generated.discard()
        life = self.context.life
        close_all(
            [
                partial(life.tear_down, link.label, partial(_tear_down, link, link.dofn))
                for link in self.links
                if link.dofn is not None
            ]
        )

    def _from_bundle(self, k: int, link: Link, emitted: Any) -> Iterator[Emitted]:
        """The results of `finish_bundle`: WindowedValues, or plain values in the global window."""
        try:
            if type(emitted) in NOT_SEVERAL:
                refuse_results(emitted)
            values = guarded_items(emitted, step=link.label, where=link.where, method="finish_bundle")
            for value in self.checks.track(k, values, None):
                inner = value.value if type(value) is TaggedOutput else value
                if type(inner) is not WindowedValue and not is_global_assigner(link.windowing.assigner):
                    raise RunError(
                        f"finish_bundle returned {shorten(value)}: "
                        "outside the global window it must return tg.WindowedValue"
                    )
                if type(value) in SPECIAL:
                    at = ElementContext(k, MIN_MICROS, None, -1, -1, Block([None]))
                    yield from self.exits.special(value, at)
                else:
                    yield from self.exits.plain(k, value)
            self.checks.verify_tracked(k)
        except Exception as error:
            rethrow(user_error(error, step=link.label, where=link.where, method="finish_bundle"))

    def check_threshold(self, k: int, calls: int, failures: int) -> None:
        """Raise RunError if more of the calls of link `k` failed than `with_exception_handling` allows."""
        link = self.links[k]
        assert isinstance(link.node, ParDo)
        assert link.node.dead_letters is not None
        threshold = link.node.dead_letters.threshold
        if calls and failures > threshold * calls:
            raise located(
                RunError(
                    f"{failures} of {calls} elements failed in this bundle, more than the threshold of {threshold:.0%} "
                    "that with_exception_handling allows"
                ),
                link.label,
                link.where,
            )

    # -- blocks

    def inlined(self, inlining: Callable[[], Inlining], n: int, *, checked: bool) -> frozenset[int]:
        """The links whose functions the loop for the next `n` elements contains, of which some set timestamps."""
        if self.context.inline == "off" or (checked and self.context.inline != "always"):
            return frozenset()
        made = inlining()
        ready = made.ready()
        self._elements_inlined[ready] += n
        if not checked:
            self.exits.stamps |= {k for k in ready if k < len(self.links) and made.bodies[k].stamped is not None}
        return ready

    def variant(self, of: Hashable, make: Callable[[], Form]) -> Callable[..., Iterator[Any]]:
        """The generated function of a form, which is made and compiled once; in a loop's body, made once for all
        rounds."""
        made = self._variants.get(of)
        if made is None:
            loop = self.context.tables.prepared.once((*self._labels, of), lambda: prepared(make()))
            made = self._variants[of] = self.generated.compile(loop, self._labels, self._environment())
        return made

    def run(self, loop: Callable[..., Iterator[Emitted]], block: Block) -> Iterator[Emitted]:
        """Run a loop over a block. Errors name the step and the element."""
        try:
            yield from loop(block.values, block.timestamps, block)
        except GeneratorExit:
            raise
        except BaseException as error:
            rethrow(self.attributed(error))
        yield from self.exits.flush_tagged(block)

    def attributed(self, error: BaseException) -> BaseException:
        """The error to raise to the author: the line of the loop gives the link, and the loop's locals the element."""
        if isinstance(error, TidegateError) and getattr(error, "step", None) is not None:
            return error
        position = self.generated.position(error)
        if position is None and isinstance(error, RuntimeError) and isinstance(error.__cause__, StopIteration):
            error = error.__cause__  # the author's; Python replaces it by a RuntimeError when it leaves a generator
            position = self.generated.position(error)
            error = self.generated.generator_error(error) or error
        if position is None:
            return error
        error = as_called(error).with_traceback(self.generated.author_traceback(error))
        owner_error = self._attribute(error, position)
        if owner_error is not None:
            return owner_error
        link = self.links[min(position.link, len(self.links) - 1)]
        if isinstance(error, TypeError) and position.raised_here:
            error = not_iterable(link, position.element, position.frame.get(f"r{position.link}")) or error
        method = "process" if link.dofn is not None else ""
        return user_error(error, step=link.label, where=link.where, element=position.element, method=method)

    def report(self) -> None:
        """Add the elements that the links have emitted since the last report to the metrics."""
        counters = self.counters
        if (counters.received or counters.emitted or any(counters.exited)) and self.links:
            for link, n in zip(self.links, counters.outputs(self.generated.counted), strict=True):
                self.context.count(link.label, "elements_out", n)
        counters.reset()
        for inlined, n in self._elements_inlined.items():
            for k in inlined:
                self.context.count(self._labels[k], INLINED, n)
        self._elements_inlined.clear()

    def _environment(self) -> dict[str, Any]:
        env: dict[str, Any] = {
            "EPOCH": EPOCH,
            "FIXED": FIXED,
            "NOT_SEVERAL": NOT_SEVERAL,
            "ONE_REFERENCE": ONE_REFERENCE,
            "SIZED": SIZED,
            "UTC": UTC,
            "block_size": self.context.block_size,
            "calls": self.counters.calls,
            "counts": self.counters.counts,
            "datetime": datetime,
            "extra": self.counters.extra,
            "references": getrefcount,
            "refuse_results": refuse_results,
            "pack": self._pack,
            "pack_split": self._pack_split,
            "same_windows": lambda block: block.windows.windows,
            "timestamp": Timestamp.of_micros,
        }
        for k, link in enumerate(self.links):
            env[f"f{k}"] = link.fn
            env[f"catch{k}"] = link.catches
            for number, const in enumerate(link.consts):
                env[f"c{k}_{number}"] = const
            callbacks = link.node.callbacks if isinstance(link.node, ParDo) else ()
            for param in (*link.params, *(param for callback in callbacks for param in callback.params)):
                match param.kind:
                    case "side":
                        env[f"side{k}_{param.ref}"] = self._sides[f"{link.label}:{param.ref}"]
                    case "round":
                        env[f"round{k}"] = int(param.ref)
        return env | self.exits.environment() | self.checks.environment() | self._owner_environment()

    def _pack(
        self, block: Block, out: list[Any], out_t: list[int], out_i: list[int], out_w: list[tuple[Any, ...]]
    ) -> Emitted:
        """The loop's output so far, as a block."""
        self.counters.emitted += len(out)
        windows: WindowsColumn
        if out_w:
            windows = Each(out_w)
        elif self.derived is not None:
            windows = self.derived
        else:
            windows = take_windows(block.windows, out_i)
        timestamps = out_t or (block.timestamps if not out_i else take_timestamps(block.timestamps, out_i))
        panes = take_panes(block.panes, out_i) if out_i else block.panes
        return self.main, Block(out, timestamps, windows, panes)

    def _pack_split(self, block: Block, *columns: Any) -> Iterable[Emitted]:
        """The loop's output so far, as blocks of bounded size: one element may have had many results."""
        collection, packed = emitted = self._pack(block, *columns)
        if len(packed) <= self.context.block_size:
            return (emitted,)
        return ((collection, part) for part in packed.split(self.context.block_size))


def _set_up(link: Link, dofn: DoFn) -> None:
    guarded(dofn.setup, step=link.label, where=link.where, method="setup")


def _tear_down(link: Link, dofn: DoFn) -> None:
    guarded(dofn.teardown, step=link.label, where=link.where, method="teardown")
