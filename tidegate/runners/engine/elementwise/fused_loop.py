"""What an operator needs around a generated loop over the author's functions: their life cycle, their errors, counts.

A chain of element-wise steps has one, and so has a stateful step; each decides for itself which loop runs a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tidegate.runners.engine.elementwise.code_writer import Source
from tidegate.runners.engine.elementwise.compiled import CompiledLoops, LoopPosition
from tidegate.runners.engine.elementwise.counters import OutputCounters
from tidegate.runners.engine.elementwise.fused_node import Link, NotSeveral, not_iterable, not_several
from tidegate.runners.engine.elementwise.result_checks import ResultChecks
from tidegate.runners.engine.elementwise.side_exits import ElementContext, SideExits
from tidegate.runners.engine.errors.attribution import close_all, guarded, guarded_items, located, rethrow, user_error
from tidegate.runners.engine.operator import Context, Emitted
from tidegate.sdk.authoring.dofn import DoFn
from tidegate.sdk.data.block import Block, DerivedFrom, Each, WindowsColumn, take_panes, take_timestamps, take_windows
from tidegate.sdk.data.values import SPECIAL, TaggedOutput, WindowedValue
from tidegate.sdk.errors import RunError, TidegateError, shorten
from tidegate.sdk.portable.model import ParDo
from tidegate.sdk.time import MIN_MICROS
from tidegate.sdk.typehints.compatibility import NOT_SEVERAL
from tidegate.sdk.windowing.assigners import is_global_assigner


class FusedLoop:
    """The generated loops over some links, and what the links share.

    `main` is the id of the collection the last link makes; `exits` and `rest` are as for SideExits. `folds`: the loop
    ends in the tables of a grouping. `environment` returns the names that the owner's loops use beside those given
    here. `blame` makes an error of the owner's of one that was raised at a place, or returns None.
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
        blame: Callable[[BaseException, LoopPosition], BaseException | None],
        folds: bool = False,
    ) -> None:
        self.links = links
        self.context = context
        self.main = main
        self.tally = OutputCounters(links, folds=folds)
        self.exits = SideExits(links, context, self.tally, exits, rest, folds=folds)
        self.checks = ResultChecks(links, context)
        self.generated = CompiledLoops()
        self.first = any(link.flat for link in links)
        """Whether no block has gone through yet, so that the loop checks what kind of results the links return."""
        self._sides = sides
        self._owners = environment
        self._blame = blame
        self._noted = NotSeveral()
        self._started: list[Link] = []
        assigning = [link for link in links if link.form == "assign"]
        self.derived = DerivedFrom(assigning[-1].windowing.assigner) if assigning else None  # type: ignore[arg-type]
        """The windows of the last link's output, where a link assigns windows."""

    # -- the life cycle of the author's DoFns

    def open(self) -> None:
        """Call `setup`."""
        for link in self.links:
            if link.dofn is not None:
                guarded(link.dofn.setup, step=link.label, where=link.where, method="setup")

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
        self.generated.forget()
        close_all([partial(_tear_down, link, link.dofn) for link in self.links if link.dofn is not None])

    def _from_bundle(self, k: int, link: Link, emitted: Any) -> Iterator[Emitted]:
        """The results of `finish_bundle`: WindowedValues, or plain values in the global window."""
        try:
            values = guarded_items(emitted, step=link.label, where=link.where, method="finish_bundle")
            for value in self.checks.held(k, values, None):
                inner = value.value if type(value) is TaggedOutput else value
                if type(inner) is not WindowedValue and not is_global_assigner(link.windowing.assigner):
                    raise RunError(
                        f"finish_bundle gave {shorten(value)}: outside the global window it must give tg.WindowedValue"
                    )
                if type(value) in SPECIAL:
                    at = ElementContext(k, MIN_MICROS, None, -1, -1, Block([None]))
                    yield from self.exits.special(value, at)
                else:
                    yield from self.exits.plain(k, value)
            self.checks.settled(k)
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

    def compile(self, source: Source, labels: Sequence[str]) -> Callable[..., Iterator[Any]]:
        """The generated function; `labels` are those of the steps that its lines run."""
        return self.generated.compile(source, labels, self._environment())

    def run(self, loop: Callable[..., Iterator[Emitted]], block: Block) -> Iterator[Emitted]:
        """Run a loop over a block; errors name the step and the element."""
        try:
            yield from loop(block.values, block.timestamps, block)
        except GeneratorExit:
            raise
        except BaseException as error:
            rethrow(self.blamed(error))
        self.first = False
        yield from self.exits.flush_tagged(block)

    def blamed(self, error: BaseException) -> BaseException:
        """The error for the author: the line of the loop tells which link was running, and its frame the element."""
        if isinstance(error, TidegateError) and getattr(error, "step", None) is not None:
            return error
        place = self.generated.place(error)
        if place is None and isinstance(error, RuntimeError) and isinstance(error.__cause__, StopIteration):
            error = error.__cause__  # the author's, which Python turns into a RuntimeError as it leaves the loop
            place = self.generated.place(error)
        if place is None:
            return error
        owners = self._blame(error, place)
        if owners is not None:
            return owners
        link = self.links[min(place.link, len(self.links) - 1)]
        if isinstance(error, TypeError) and place.in_loop:
            error = not_iterable(link, place.element, place.frame.get(f"r{place.link}")) or error
        method = "process" if link.dofn is not None else ""
        return user_error(error, step=link.label, where=link.where, element=place.element, method=method)

    def report(self) -> None:
        """Add what the links have emitted since the last report to the metrics."""
        tally = self.tally
        if (tally.taken or tally.emitted or any(tally.left)) and self.links:
            for link, n in zip(self.links, tally.outputs(self.generated.counted), strict=True):
                self.context.count(link.label, "elements_out", n)
        tally.begin()

    def _environment(self) -> dict[str, Any]:
        env: dict[str, Any] = {
            "NOT_SEVERAL": NOT_SEVERAL,
            "block_size": self.context.block_size,
            "calls": self.tally.calls,
            "counts": self.tally.counts,
            "further": self.tally.further,
            "look_at_noted": self._noted.look,
            "none_as_empty": lambda results: () if results is None else results,
            "not_several": not_several,
            "noted": self._noted.note,
            "pack": self._pack,
            "packs": self._packs,
        }
        for k, link in enumerate(self.links):
            env[f"f{k}"] = link.fn
            env[f"catch{k}"] = link.catches
            for number, const in enumerate(link.consts):
                env[f"c{k}_{number}"] = const
            for param in link.params:
                if param.kind == "side":
                    env[f"side{k}_{param.ref}"] = self._sides[f"{link.label}:{param.ref}"]
        return env | self.exits.environment() | self.checks.environment() | self._owners()

    def _pack(
        self, block: Block, out: list[Any], out_t: list[int], out_i: list[int], out_w: list[tuple[Any, ...]]
    ) -> Emitted:
        """The loop's output so far as a block."""
        self.tally.emitted += len(out)
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

    def _packs(self, block: Block, *columns: Any) -> Iterator[Emitted]:
        """The loop's output so far as blocks of bounded size, where one element may have had many results."""
        collection, packed = self._pack(block, *columns)
        for part in packed.split(self.context.block_size):
            yield collection, part


def _tear_down(link: Link, dofn: DoFn) -> None:
    guarded(dofn.teardown, step=link.label, where=link.where, method="teardown")
