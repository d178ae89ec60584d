"""A chain of element-wise steps, fused into one loop that emits blocks or fills the tables of a grouping."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from tidegate.runners.engine.elementwise.codegen import generate
from tidegate.runners.engine.elementwise.fold_target import FoldTarget
from tidegate.runners.engine.elementwise.fused_loop import FusedLoop
from tidegate.runners.engine.elementwise.fused_node import Link, assigning
from tidegate.runners.engine.elementwise.shape import Column, Fold, Shape, needs_each_time, only_unpacks
from tidegate.runners.engine.elementwise.split_by_window import split_by_window
from tidegate.runners.engine.elementwise.unstamped import assigns_by_time, counter_for_unstamped
from tidegate.runners.engine.loops.compiled import LoopPosition, current_index
from tidegate.runners.engine.loops.inlining import Inlining
from tidegate.runners.engine.operator import Context, Emitted, Operator
from tidegate.sdk.data.block import Block, DerivedFrom, Each, Pairs, RawBlock, Same, WindowsColumn, in_several
from tidegate.sdk.data.panes import PaneInfo
from tidegate.sdk.data.values import TimestampedValue
from tidegate.sdk.time import MIN_MICROS, Timestamp
from tidegate.sdk.windowing.assigners import GlobalWindows
from tidegate.sdk.windowing.assignment import assign_windows


class Chain(Operator):
    """Element-wise links as one loop. With a `grouping`, the loop fills its tables and emits no blocks.

    `main` is the id of the last link's output collection. `exits` has the ids of the other output collections that some
    step reads, by the link's label and the output's tag, since several links may use the same tag.
    """

    def __init__(
        self,
        links: tuple[Link, ...],
        context: Context,
        main: str,
        *,
        exits: Mapping[tuple[str, str], str] | None = None,
        grouping: FoldTarget | None = None,
        sides: dict[str, Callable[[Any], Any]] | None = None,
    ) -> None:
        self.links = links
        self.context = context
        self.main = main
        self.grouping = grouping
        self._exit_collections = exits or {}
        self._sides = sides or {}
        self._loop = FusedLoop(
            links,
            context,
            main,
            exits=self._exit_collections,
            sides=self._sides,
            rest=self._run_rest,
            environment=self._environment,
            attribute=self._attributed_to_grouping,
            labels=[link.label for link in links] + ([grouping.label] if grouping is not None else []),
            folds=grouping is not None,
        )
        self._exits = self._loop.exits
        self._counters = self._loop.counters
        self._adds_several = grouping is not None and any(link.flat for link in links)
        """Whether the loop itself accounts for the elements that it adds, which may be more than it receives."""
        self._assigned_by: WindowsColumn | None = None
        self._assign: Callable[[int], tuple[Any, ...]] = lambda t: ()
        self._only_assigns = grouping is None and all(
            link.form == "assign" and not (link.looks_up_windows or link.may_drop) for link in links
        )
        self._assigns = any(link.form == "assign" for link in links)
        self._assigns_by_time = assigns_by_time(links)
        # The order matters to a DoFn with state of its own, and to an element that is about to get a new timestamp.
        self._in_any_order = not any(link.dofn is not None or link.guarded for link in links)
        self._watermark = self._clock = MIN_MICROS
        self._needs_times: dict[tuple[frozenset[int], Fold | None], bool] = {}
        self._suffixes: dict[int, Chain] = {}
        """By link, a chain of the links after it, for results that have left it by a side exit."""

    @property
    def may_fold(self) -> bool:
        """Whether its loop may fill the tables of a grouping: no results but those of the last link leave it, and no
        step is called once for each window."""
        return self.grouping is None and not self._exit_collections and not any(k.sees_window for k in self.links)

    def into(self, grouping: FoldTarget) -> Chain:
        """This chain, which has not been opened, with a loop that fills the tables of a grouping instead."""
        exits, sides = self._exit_collections, self._sides
        return type(self)(self.links, self.context, self.main, exits=exits, grouping=grouping, sides=sides)

    # -- events

    def open(self) -> None:
        self._loop.open()

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        if not len(block):
            return
        self._loop.start_bundle()
        for sample, checked in self._loop.checks.sampled(block):
            for part in (sample,) if checked else self._split(sample):
                yield from self.run(part, checked=checked)
        if self.grouping is not None and not self._adds_several:
            self.grouping.block_added(len(block))

    def finish_bundle(self) -> Iterator[Emitted]:
        yield from self._loop.finish_bundle()
        for k, link in enumerate(self.links):
            if link.catches:
                self._loop.check_threshold(k, *self._attempts(k))
        self._verify()
        self._report()

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        self._watermark = micros
        return iter(())

    def finish(self) -> Iterator[Emitted]:
        yield from self.finish_bundle()

    def close(self) -> None:
        for suffix in self._suffixes.values():
            suffix._discard()
        self._loop.close()

    # -- one block

    def run(self, block: Block, *, checked: bool) -> Iterator[Emitted]:
        """Run the chain over a block; `checked`: with the loop that checks elements and results."""
        counter = counter_for_unstamped(block) if self._assigns_by_time else None
        if counter is None:
            return self._run_loop(block, checked=checked)
        return self._run_counting(counter, block, checked=checked)

    def _split(self, block: Block) -> Iterable[Block]:
        """The block split by window, if its elements may come in any order and that is faster."""
        if self.grouping is None or not self._in_any_order:
            return (block,)
        fold = self._fold(block)
        if fold is None or fold.windows != "single":
            return (block,)
        return split_by_window(block, self.grouping.bounds)

    def _run_counting(self, counter: str, block: Block, *, checked: bool) -> Iterator[Emitted]:
        """Run an unstamped block, and count the elements that reach windows before a step has stamped any."""
        before = self._counters.outputs(self._loop.generated.counted)
        yield from self._run_loop(block, checked=checked)
        after = self._counters.outputs(self._loop.generated.counted)
        for k in self._assigns_by_time:
            if not any(stamping < k for stamping in self._exits.stamps):
                self.context.count(self.links[k].label, counter, after[k] - before[k])

    def _run_loop(self, block: Block, *, checked: bool) -> Iterator[Emitted]:
        grouping = self.grouping
        if grouping is not None and not self.links and not checked and grouping.add_block(block):
            return
        self._counters.received += len(block)
        raw = False
        if isinstance(block, RawBlock) and not checked and self._takes_raw and type(block.elements) is list:
            block, raw = Block(block.elements), True
        if self._only_assigns and not self._may_repeat(block):
            self._counters.emitted += len(block)
            yield self.main, Block(block.values, block.timestamps, self._loop.derived or block.windows, block.panes)
            return
        yield from self._loop.run(self._compiled(block, checked, raw=raw), block)

    def _compiled(self, block: Block, checked: bool, *, raw: bool = False) -> Callable[..., Iterator[Emitted]]:
        """The loop for blocks such as this one. `raw`: some elements may be TimestampedValues."""
        inlined = self._loop.inlined(lambda: self._inlining, len(block), checked=checked)
        match block.windows:
            case Same():
                windows = "one" if len(block.windows.windows) == 1 else "same"
            case Each():
                windows = "each"
            case DerivedFrom():
                windows = "derived"
        timed = not isinstance(block.timestamps, int)
        several = self._assigns and in_several(block.windows)
        indexed = windows == "each" or not isinstance(block.panes, PaneInfo)
        fold = self._fold(block)
        shape = Shape(
            timed=timed,
            times_by_index=timed
            and not (checked or indexed or several)
            and type(block.values) is list
            and not self._needs_each_time(fold),
            indexed=indexed,
            windows=windows,  # type: ignore[arg-type]
            in_several=several,
            stamps=self._exits.stamps,
            checked=checked,
            typed=self.context.runtime_types,
            inlined=inlined,
            column=_column(block.values) if only_unpacks(self.links, fold) else "any",
            raw=raw,
        )
        bodies = self._inlining.bodies if inlined else {}
        of = shape, None if fold is None else (fold.windows, bool(fold.also))
        return self._loop.variant(of, lambda: generate(self.links, shape, fold, bodies))

    @cached_property
    def _inlining(self) -> Inlining:
        grouping = self.grouping
        adding = None if grouping is None else grouping.adding
        links = self.links if adding is None else (*self.links, adding)
        labels = tuple(link.label for link in self.links), "" if grouping is None else grouping.label
        return self.context.tables.prepared.once(labels, lambda: Inlining(links))

    @cached_property
    def _takes_raw(self) -> bool:
        """Whether the loop does nothing with an element but unpack it, and has no use for its timestamp."""
        return self.grouping is not None and not self.links and only_unpacks((), self.grouping.fold("same"))

    def _may_repeat(self, block: Block) -> bool:
        """True if a chain that only assigns windows may emit an element more than once, for each window it is in."""
        return in_several(block.windows) or any(link.assigns_several for link in self.links[:-1])

    def _needs_each_time(self, fold: Fold | None) -> bool:
        """`needs_each_time`, cached."""
        stamps = self._exits.stamps
        known = self._needs_times.get((stamps, fold))
        if known is None:
            known = self._needs_times[stamps, fold] = needs_each_time(self.links, stamps, fold)
        return known

    def _fold(self, block: Block) -> Fold | None:
        """How the grouping at the end adds the elements of this block; it depends on how their windows are found."""
        grouping = self.grouping
        if grouping is None:
            return None
        stamps = self._exits.stamps
        derived: WindowsColumn | None = block.windows
        for k, link in enumerate(self.links):
            assigner = link.windowing.assigner
            if link.form == "assign":
                derived = None if link.looks_up_windows else DerivedFrom(assigner)  # type: ignore[arg-type]
            elif link.sees_window or (k in stamps and isinstance(derived, Same) and link.reassigns):
                derived = None
        match derived:
            case Same(windows) if len(windows) == 1:
                return grouping.fold("same")
            case DerivedFrom(GlobalWindows()):
                return grouping.fold("global")
            case DerivedFrom(assigner) if grouping.use_single_window(assigner):
                span = None if stamps else block.span
                return grouping.fold("single" if span is None or span[1] >= grouping.bounds(span[0])[1] else "inside")
            case _:
                return grouping.fold("multi")

    def _environment(self) -> dict[str, Any]:
        env: dict[str, Any] = {
            "clock": lambda: Timestamp.of_micros(self._clock if self._clock > MIN_MICROS else self.context.now()),
            "derived": self._windows_at,
            "unwrapped": _unwrapped,
            "watermark": lambda: Timestamp.of_micros(self._watermark),
        }
        for k, link in enumerate(self.links):
            if link.form == "assign":
                env[f"assign{k}"] = assigning(link)
        return env if self.grouping is None else env | self.grouping.environment() | {"added": self._added}

    def _added(self, n: int) -> Emitted:
        """Account for `n` elements that the loop has added. It returns control by emitting the block without elements
        that this returns."""
        assert self.grouping is not None
        self.grouping.block_added(n)
        return self.main, _NOTHING

    def _windows_at(self, block: Block, t: int) -> tuple[Any, ...]:
        """The windows that the block's assigner assigns to an element at `t`."""
        if block.windows is not self._assigned_by:
            assert isinstance(block.windows, DerivedFrom)
            self._assigned_by, self._assign = block.windows, assign_windows(block.windows.assigner)
        return self._assign(t)

    def _attributed_to_grouping(self, error: BaseException, position: LoopPosition) -> BaseException | None:
        if position.link < len(self.links):
            return None
        assert self.grouping is not None
        return self.grouping.attributed(error, position.element)

    # -- results that have left a link by a side exit

    def _run_rest(self, k: int, block: Block) -> Iterator[Emitted]:
        """Run the links after link `k` over a block that it has emitted."""
        if k == len(self.links) - 1 and self.grouping is None:
            yield self.main, block
            return
        suffix = self._suffixes.get(k)
        if suffix is None:
            suffix = self._suffixes[k] = Chain(
                self.links[k + 1 :],
                self.context,
                self.main,
                exits=self._exit_collections,
                grouping=self.grouping,
                sides=self._sides,
            )
            suffix._exits.stamps = frozenset(j - k - 1 for j in self._exits.stamps if j > k)
        yield from suffix.run(block, checked=self.context.checks is not None and self.context.checks.mode == "all")
        if self._adds_several and not suffix._adds_several:
            self._added(len(block))

    def _attempts(self, k: int) -> tuple[int, int]:
        """How often link `k` was called and how often it failed in this bundle: in the loop, and after side exits."""
        calls, failures = self._counters.attempts(k)
        for j, suffix in self._suffixes.items():
            if j < k:
                more, failed = suffix._attempts(k - j - 1)
                calls, failures = calls + more, failures + failed
        return calls, failures

    def _verify(self) -> None:
        self._loop.checks.verify()
        for suffix in self._suffixes.values():
            suffix._verify()

    def _report(self) -> None:
        self._loop.report()
        for suffix in self._suffixes.values():
            suffix._report()

    def _discard(self) -> None:
        self._loop.generated.discard()
        for suffix in self._suffixes.values():
            suffix._discard()


def _column(values: Sequence[Any]) -> Column:
    return "list" if type(values) is list else "pairs" if type(values) is Pairs else "any"


def _unwrapped(elements: list[Any], rest: Iterator[Any]) -> list[Any] | None:
    """The values of the element that a loop over `rest` is at and of all after it, if it is a TimestampedValue."""
    at = current_index(elements, rest)
    if type(elements[at]) is not TimestampedValue:
        return None
    return [element.value if type(element) is TimestampedValue else element for element in elements[at:]]


_NOTHING: Final = Block(())


class ClockedChain(Chain):
    """A chain with a step that reads processing time."""

    def on_clock(self, micros: int) -> Iterator[Emitted]:
        self._clock = micros
        return iter(())
