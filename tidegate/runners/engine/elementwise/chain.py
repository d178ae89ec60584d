"""A fused chain at work: blocks in, blocks out, or into the table of the grouping it ends in."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from tidegate.runners.engine.checks import contracts
from tidegate.runners.engine.elementwise.codegen import Fold, Shape, asks_for_times, generate
from tidegate.runners.engine.elementwise.compiled import Generated
from tidegate.runners.engine.elementwise.counters import Tally
from tidegate.runners.engine.elementwise.fold_target import FoldTarget
from tidegate.runners.engine.elementwise.fused_node import Link, NotSeveral, assigning, not_iterable, not_several
from tidegate.runners.engine.elementwise.split_by_window import parted
from tidegate.runners.engine.elementwise.unstamped import assigns_by_time, without_time
from tidegate.runners.engine.errors.attribution import close_all, guarded, guarded_items, located, rethrow, user_error
from tidegate.runners.engine.operator import Context, Emitted, Operator
from tidegate.sdk.authoring.dofn import DoFn
from tidegate.sdk.data.block import (
    Block,
    DerivedFrom,
    Each,
    Same,
    WindowsColumn,
    in_several,
    take_panes,
    take_timestamps,
    take_windows,
)
from tidegate.sdk.data.panes import PaneInfo
from tidegate.sdk.data.values import SPECIAL, TaggedOutput, TimestampedValue, WindowedValue
from tidegate.sdk.errors import CheckError, RunError, TidegateError, shorten
from tidegate.sdk.portable.model import ParDo
from tidegate.sdk.time import MIN_MICROS, Timestamp
from tidegate.sdk.typehints.compatibility import NOT_SEVERAL, matches
from tidegate.sdk.typehints.hints import type_name
from tidegate.sdk.user_code.user_fn import author_frames
from tidegate.sdk.windowing.assigners import (
    CustomAssigner,
    GlobalWindows,
    Merged,
    assign_windows,
    element_dependent,
    is_global_assigner,
)


class Chain(Operator):
    """Element-wise links as one loop. With a `grouping`, the loop ends in its table and gives no blocks.

    `main` is the id of the collection the last link makes. `exits` has the further outputs that someone reads: the id
    of the collection by the link's label and the output's tag, since several links may use the same tag.
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
        self.exits = exits or {}
        self.grouping = grouping
        self._sides = sides or {}
        self._stamps: frozenset[int] = frozenset()
        self._assigned_by: WindowsColumn | None = None
        self._assign: Callable[[int], tuple[Any, ...]] = lambda t: ()
        self._only_assigns = grouping is None and all(
            link.form == "assign" and not (link.looks_up_windows or link.may_drop) for link in links
        )
        # Objects may count what they have seen, and what gets another timestamp may come to stand behind others.
        self._assigns = any(link.form == "assign" for link in links)
        self._assigns_by_time = assigns_by_time(links)
        self._in_any_order = not any(link.dofn is not None or link.guarded for link in links)
        self._watermark = self._clock = MIN_MICROS
        self._loops: dict[tuple[Shape, Fold | None], Callable[..., Iterator[Emitted]]] = {}
        self._asking: dict[tuple[frozenset[int], Fold | None], bool] = {}
        self._generated = Generated()
        self._suffixes: dict[int, Chain] = {}
        self._first = any(link.flat for link in links)
        self._noted = NotSeveral()
        self._seen = 0
        self._blocks = 0
        self._tally = Tally(links, folds=grouping is not None)
        self._tagged: dict[str, list[Any]] = {tag: [] for tag in self._declared()}
        self._started: list[Link] = []
        self._given = [contracts.Given() for _ in links] if context.checks is not None else []

    # -- the life of the chain

    def open(self) -> None:
        for link in self.links:
            if link.dofn is not None:
                guarded(link.dofn.setup, step=link.label, where=link.where, method="setup")

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        if not len(block):
            return
        self._start_bundle()
        self._blocks += 1
        share = 0
        if self.context.checks is not None:
            share = self.context.checks.share(self._seen, self._blocks, len(block))
        self._seen += len(block)
        if share:
            yield from self._run(block.slice(0, share), checked=True)
        if share < len(block):
            for part in self._parted(block.slice(share, len(block)) if share else block):
                yield from self._run(part, checked=False)
        if self.grouping is not None:
            self.grouping.block_added(len(block))

    def finish_bundle(self) -> Iterator[Emitted]:
        started, self._started = self._started, []
        for link in started:
            k = self.links.index(link)
            if link.dofn is not None:
                emitted = guarded(link.dofn.finish_bundle, step=link.label, where=link.where, method="finish_bundle")
                if emitted is not None:
                    yield from self._from_bundle(k, link, emitted)
        for k, link in enumerate(self.links):
            if link.catches:
                self._check_threshold(k, link)
        self._verify_given()
        self.report()

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        self._watermark = micros
        return iter(())

    def finish(self) -> Iterator[Emitted]:
        yield from self.finish_bundle()

    def close(self) -> None:
        self._forget()
        close_all([partial(self._teardown, link, link.dofn) for link in self.links if link.dofn is not None])

    @staticmethod
    def _teardown(link: Link, dofn: DoFn) -> None:
        guarded(dofn.teardown, step=link.label, where=link.where, method="teardown")

    def _forget(self) -> None:
        self._generated.forget()
        for suffix in self._suffixes.values():
            suffix._forget()

    def _start_bundle(self) -> None:
        if self._started:
            return
        for link in self.links:
            if isinstance(link.node, ParDo) and link.node.bundle_hooks and link.dofn is not None:
                guarded(link.dofn.start_bundle, step=link.label, where=link.where, method="start_bundle")
                self._started.append(link)

    # -- one block

    def _parted(self, block: Block) -> Iterable[Block]:
        """A block as one for each window, where elements may come in any order and that is quicker."""
        if self.grouping is None or not self._in_any_order:
            return (block,)
        fold = self._fold(block)
        return parted(block, self.grouping.bounds) if fold is not None and fold.windows == "single" else (block,)

    def _run(self, block: Block, *, checked: bool) -> Iterator[Emitted]:
        counter = without_time(block) if self._assigns_by_time else None
        if counter is None:
            return self._through(block, checked=checked)
        return self._counting(counter, block, checked=checked)

    def _counting(self, counter: str, block: Block, *, checked: bool) -> Iterator[Emitted]:
        """Run a block without times, and count the elements that reach windows before a step has stamped any."""
        before = self._tally.outputs(self._generated.counted)
        yield from self._through(block, checked=checked)
        after = self._tally.outputs(self._generated.counted)
        for k in self._assigns_by_time:
            if not any(stamping < k for stamping in self._stamps):
                self.context.count(self.links[k].label, counter, after[k] - before[k])

    def _through(self, block: Block, *, checked: bool) -> Iterator[Emitted]:
        grouping = self.grouping
        if grouping is not None and not self.links and not checked:
            if grouping.adds_whole(block):
                return
        self._tally.taken += len(block)
        if self._only_assigns and not self._repeats(block):
            self._tally.emitted += len(block)
            yield self.main, Block(block.values, block.timestamps, self._derived() or block.windows, block.panes)
            return
        loop = self._loop(block, checked)
        try:
            yield from loop(block.values, block.timestamps, block)
        except GeneratorExit:
            raise
        except BaseException as error:
            rethrow(self._blamed(error))
        self._first = False
        if self._tagged:
            yield from self._flush_tagged(block)

    def _loop(self, block: Block, checked: bool) -> Callable[..., Iterator[Emitted]]:
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
            rarely=timed
            and not (checked or indexed or several)
            and type(block.values) is list
            and not self._asks(fold),
            indexed=indexed,
            windows=windows,  # type: ignore[arg-type]
            several=several,
            stamps=self._stamps,
            checked=checked,
            typed=self.context.runtime_types,
            first=self._first,
        )
        loop = self._loops.get((shape, fold))
        if loop is None:
            loop = self._loops[shape, fold] = self._compile(shape, fold)
        return loop

    def _repeats(self, block: Block) -> bool:
        """Whether a chain that only assigns windows may give an element more than once: for each window it is in."""
        return in_several(block.windows) or any(link.gives_several for link in self.links[:-1])

    def _asks(self, fold: Fold | None) -> bool:
        """See `asks_for_times`."""
        known = self._asking.get((self._stamps, fold))
        if known is None:
            known = self._asking[self._stamps, fold] = asks_for_times(self.links, self._stamps, fold)
        return known

    def _fold(self, block: Block) -> Fold | None:
        """How the grouping at the end takes elements in, by where their windows will be found."""
        grouping = self.grouping
        if grouping is None:
            return None
        derived: WindowsColumn | None = block.windows
        for k, link in enumerate(self.links):
            assigner = link.windowing.assigner
            if link.form == "assign":
                derived = None if link.looks_up_windows else DerivedFrom(assigner)  # type: ignore[arg-type]
            elif link.sees_window or (k in self._stamps and isinstance(derived, Same) and link.reassigns):
                derived = None
        match derived:
            case Same(windows) if len(windows) == 1:
                return grouping.fold("same")
            case DerivedFrom(GlobalWindows()):
                return grouping.fold("global")
            case DerivedFrom(assigner) if grouping.finds_windows(assigner):
                span = None if self._stamps else block.span
                return grouping.fold("single" if span is None or span[1] >= grouping.bounds(span[0])[1] else "inside")
            case _:
                return grouping.fold("multi")

    def _compile(self, shape: Shape, fold: Fold | None) -> Callable[..., Iterator[Emitted]]:
        source = generate(self.links, shape, fold)
        labels = [link.label for link in self.links]
        if self.grouping is not None:
            labels.append(self.grouping.label)
        return self._generated.compile(source, labels, self._environment())

    def _environment(self) -> dict[str, Any]:
        env: dict[str, Any] = {
            "SPECIAL": SPECIAL,
            "TimestampedValue": TimestampedValue,
            "TaggedOutput": TaggedOutput,
            "timestamp": Timestamp.of_micros,
            "block_size": self.context.block_size,
            "counts": self._tally.counts,
            "calls": self._tally.calls,
            "further": self._tally.further,
            "tagged": self._tagged,
            "pack": self._pack,
            "packs": self._packs,
            "special": self._special,
            "restamped": self._restamped,
            "same_windows": lambda block: block.windows.windows,
            "derived": self._windows_at,
            "dead": self._dead,
            "NOT_SEVERAL": NOT_SEVERAL,
            "not_several": not_several,
            "noted": self._noted.note,
            "look_at_noted": self._noted.look,
            "none_as_empty": lambda results: () if results is None else results,
            "snapshot": contracts.snapshot,
            "unchanged": self._unchanged,
            "watched": self._watched,
            "held": self._held,
            "settled": lambda k: self._given[k].settle(),
            "gave": self._gave,
            "typed": self._typed,
            "watermark": lambda: Timestamp.of_micros(self._watermark),
            "clock": lambda: Timestamp.of_micros(self._clock if self._clock > MIN_MICROS else self.context.now()),
        }
        for k, link in enumerate(self.links):
            env[f"f{k}"] = link.fn
            env[f"catch{k}"] = link.catches
            for number, const in enumerate(link.consts):
                env[f"c{k}_{number}"] = const
            if link.form == "assign":
                env[f"assign{k}"] = assigning(link)
            for param in link.params:
                if param.kind == "side":
                    env[f"side{k}_{param.ref}"] = self._sides[f"{link.label}:{param.ref}"]
        if self.grouping is not None:
            env.update(self.grouping.environment())
        return env

    def _pack(
        self, block: Block, out: list[Any], out_t: list[int], out_i: list[int], out_w: list[tuple[Any, ...]]
    ) -> Emitted:
        """The loop's output so far as a block."""
        self._tally.emitted += len(out)
        windows: WindowsColumn
        if out_w:
            windows = Each(out_w)
        else:
            derived = self._derived()
            windows = take_windows(block.windows, out_i) if derived is None else derived
        timestamps = out_t or (block.timestamps if not out_i else take_timestamps(block.timestamps, out_i))
        panes = take_panes(block.panes, out_i) if out_i else block.panes
        return self.main, Block(out, timestamps, windows, panes)

    def _packs(self, block: Block, *columns: Any) -> Iterator[Emitted]:
        """The same as blocks of bounded size, where the results of one element were more."""
        collection, packed = self._pack(block, *columns)
        for part in packed.split(self.context.block_size):
            yield collection, part

    def _windows_at(self, block: Block, t: int) -> tuple[Any, ...]:
        """The windows that the block's assigner gives an element at `t`."""
        if block.windows is not self._assigned_by:
            assert isinstance(block.windows, DerivedFrom)
            self._assigned_by, self._assign = block.windows, assign_windows(block.windows.assigner)
        return self._assign(t)

    def _derived(self) -> DerivedFrom | None:
        for link in reversed(self.links):
            if link.form == "assign":
                return DerivedFrom(link.windowing.assigner)  # type: ignore[arg-type]
        return None

    # -- what is rare

    def _special(
        self, k: int, made: Any, t: int, windows: tuple[Any, ...] | None, derived: int, i: int, block: Block
    ) -> Iterator[Emitted]:
        """A step gave something that is no plain value: unwrap it and take it through the rest of the chain."""
        link = self.links[k]
        pane = block.panes if isinstance(block.panes, PaneInfo) else block.panes[i]
        column = self._column(windows, derived, i, block)
        collection = None
        if type(made) is TaggedOutput:
            collection = self._destination(link, made.tag)
            made = made.value
        if type(made) is TimestampedValue:
            self._stamps = self._stamps | {k}
            if not isinstance(column, DerivedFrom):
                column = Each([self._restamped(k, made.micros, Block([None], t, column).window_list()[0])])
            t, made = made.micros, made.value
        elif type(made) is WindowedValue:
            column, t, pane, made = Each([made.windows]), made.micros, made.pane, made.value
        if type(made) in SPECIAL:
            raise located(
                RunError(
                    f"this step gave a {type(made).__name__} inside another wrapper: {shorten(made)}. "
                    "Put the tag outside"
                ),
                link.label,
                link.where,
            )
        if isinstance(column, Each) and not column.windows[0]:
            return  # the assigner has no window for its new timestamp
        self._tally.left[k] += 1
        out = Block([made], t, column, pane)
        if collection is None:
            yield from self._rest(k, out)
        elif collection:
            yield collection, out

    def _column(self, windows: tuple[Any, ...] | None, derived: int, i: int, block: Block) -> WindowsColumn:
        """The windows of the one element in hand: as found by the loop, or by whatever tells them."""
        if windows is not None:
            return Each([windows])
        if derived >= 0:
            return DerivedFrom(self.links[derived].windowing.assigner)  # type: ignore[arg-type]
        return take_windows(block.windows, [i]) if i >= 0 else block.windows

    def _destination(self, link: Link, tag: str) -> str | None:
        """Where a tagged output goes: None for the main output, "" if nobody reads it."""
        outputs = link.node.outputs
        if tag == outputs[0].tag:
            return None
        if any(output.tag == tag for output in outputs[1:]):
            return self.exits.get((link.label, tag), "")
        declared = ", ".join(repr(output.tag) for output in outputs[1:]) or "none"
        raise located(
            RunError(f"this step gave an output tagged {tag!r}, but declares {declared}: add .with_outputs({tag!r})"),
            link.label,
            link.where,
        )

    def _rest(self, k: int, block: Block) -> Iterator[Emitted]:
        """Take a block that link `k` made through the links after it."""
        if k == len(self.links) - 1 and self.grouping is None:
            yield self.main, block
            return
        suffix = self._suffixes.get(k)
        if suffix is None:
            suffix = self._suffixes[k] = Chain(
                self.links[k + 1 :],
                self.context,
                self.main,
                exits=self.exits,
                grouping=self.grouping,
                sides=self._sides,
            )
            suffix._stamps = frozenset(j - k - 1 for j in self._stamps if j > k)
        yield from suffix._run(block, checked=self.context.checks is not None and self.context.checks.mode == "all")

    def _restamped(self, k: int, t: int, windows: tuple[Any, ...]) -> tuple[Any, ...]:
        """The windows of an element whose timestamp has changed: assigned anew, if the timestamp alone tells them."""
        assigner = self.links[k].windowing.assigner
        match assigner:
            case Merged() | CustomAssigner():
                return windows
            case _ if element_dependent(assigner):
                return windows
            case _:
                return assign_windows(assigner)(t)

    def _from_bundle(self, k: int, link: Link, emitted: Any) -> Iterator[Emitted]:
        """What `finish_bundle` gave: WindowedValues, or plain values in the global window."""
        try:
            values = guarded_items(emitted, step=link.label, where=link.where, method="finish_bundle")
            for value in self._held(k, values, None) if self._given else values:
                inner = value.value if type(value) is TaggedOutput else value
                if type(inner) is not WindowedValue and not is_global_assigner(link.windowing.assigner):
                    raise RunError(
                        f"finish_bundle gave {shorten(value)}: outside the global window it must give tg.WindowedValue"
                    )
                block = Block([None])
                if type(value) in SPECIAL:
                    yield from self._special(k, value, MIN_MICROS, None, -1, -1, block)
                else:
                    self._tally.left[k] += 1
                    yield from self._rest(k, Block([value]))
            if self._given:
                self._given[k].settle()
        except Exception as error:
            rethrow(user_error(error, step=link.label, where=link.where, method="finish_bundle"))

    def _dead(
        self,
        k: int,
        element: Any,
        error: BaseException,
        t: int,
        windows: tuple[Any, ...] | None,
        derived: int,
        i: int,
        block: Block,
    ) -> Iterator[Emitted]:
        """A dead letter: the element and what was raised."""
        self._tally.failures[k] += 1
        node = self.links[k].node
        assert isinstance(node, ParDo)
        assert node.dead_letters is not None
        self.context.count(node.label, "dead_letters")
        collection = self.exits.get((node.label, node.dead_letters.tag))
        if collection is not None:
            parts = traceback.format_exception(type(error), error, author_frames(error.__traceback__))
            lines = [line for part in parts[1:] for line in part.rstrip("\n").split("\n")]
            letter = (element, (type(error).__name__, shorten(error, sys.maxsize), lines))
            pane = block.panes if isinstance(block.panes, PaneInfo) else block.panes[i]
            yield collection, Block([letter], t, self._column(windows, derived, i, block), pane)

    def _check_threshold(self, k: int, link: Link) -> None:
        assert isinstance(link.node, ParDo)
        assert link.node.dead_letters is not None
        calls, failures = self._attempts(k)
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

    def _attempts(self, k: int) -> tuple[int, int]:
        """How often link `k` was called in this bundle, and how often it failed: here, and behind special values."""
        calls, failures = self._tally.attempts(k)
        for j, suffix in self._suffixes.items():
            if j < k:
                more, failed = suffix._attempts(k - j - 1)
                calls, failures = calls + more, failures + failed
        return calls, failures

    def _declared(self) -> list[str]:
        node = self.links[-1].node if self.links else None
        if not isinstance(node, ParDo) or self.grouping is not None:
            return []
        dead = node.dead_letters.tag if node.dead_letters is not None else None
        return [output.tag for output in node.outputs[1:] if output.tag != dead]

    def _flush_tagged(self, block: Block) -> Iterator[Emitted]:
        for tag, values in self._tagged.items():
            if values:
                collection = self.exits.get((self.links[-1].label, tag))
                self._tally.left[-1] += len(values)
                full = values[:]
                values.clear()
                if collection is not None:
                    for part in Block(full, block.timestamps, block.windows, block.panes).split(
                        self.context.block_size
                    ):
                        yield collection, part

    # -- checks

    def _unchanged(self, k: int, before: bytes | None, element: Any) -> None:
        if contracts.changed(before, element):
            raise contracts.mutated(before, element, "the element was")

    def _watched(self, k: int, results: Any, before: bytes | None, element: Any) -> Any:
        """The results, and a CheckError at their end if making them changed the element, or one of them."""
        if not hasattr(results, "__iter__"):
            return results

        def watched() -> Iterator[Any]:
            yield from self._given[k].hold(results, element)
            self._unchanged(k, before, element)
            self._given[k].settle()

        return watched()

    def _held(self, k: int, results: Any, element: Any) -> Any:
        """The results, to be looked at again when they are all there."""
        return self._given[k].hold(results, element) if hasattr(results, "__iter__") else results

    def _gave(self, k: int, made: Any, element: Any) -> None:
        if made is not element:
            self._given[k].one(made)

    def _verify_given(self) -> None:
        for link, given in zip(self.links, self._given, strict=False):
            try:
                given.verify()
            except CheckError as error:
                rethrow(located(error, link.label, link.where))
        for suffix in self._suffixes.values():
            suffix._verify_given()

    def _typed(self, k: int, made: Any) -> None:
        hint = self.links[k].hint
        if not matches(made, hint):
            raise CheckError(f"the step gave {shorten(made)}, which is no {type_name(hint)}, as its annotation says")

    # -- errors and counts

    def _blamed(self, error: BaseException) -> BaseException:
        """The error for the author: the frame of the loop says which link was running, and on what."""
        if isinstance(error, TidegateError) and getattr(error, "step", None) is not None:
            return error
        place = self._generated.place(error)
        if place is None and isinstance(error, RuntimeError) and isinstance(error.__cause__, StopIteration):
            error = error.__cause__  # the author's, which Python turns into a RuntimeError on its way out of the loop
            place = self._generated.place(error)
        if place is None:
            return error
        if place.link >= len(self.links):
            assert self.grouping is not None
            return self.grouping.blamed(error, place.element)
        link = self.links[place.link]
        if isinstance(error, TypeError) and place.in_loop:
            error = not_iterable(link, place.element, place.frame.get(f"r{place.link}")) or error
        method = "process" if link.dofn is not None else ""
        return user_error(error, step=link.label, where=link.where, element=place.element, method=method)

    def report(self) -> None:
        """Add what the links have given since the last time to the metrics."""
        if (self._tally.taken or self._tally.emitted or any(self._tally.left)) and self.links:
            for link, n in zip(self.links, self._tally.outputs(self._generated.counted), strict=True):
                self.context.count(link.label, "elements_out", n)
        self._tally.begin()
        for suffix in self._suffixes.values():
            suffix.report()


class ClockedChain(Chain):
    """A chain in which a step asks what time it is."""

    def on_clock(self, micros: int) -> Iterator[Emitted]:
        self._clock = micros
        return iter(())
