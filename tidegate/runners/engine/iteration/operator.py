"""The operator of an Iterate: it collects what the loop reads, runs the rounds when all of it has come, and emits."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from tidegate.runners.engine.errors.attribution import final, located, user_error
from tidegate.runners.engine.iteration.block_store import BlockStore
from tidegate.runners.engine.iteration.decision import (
    Decision,
    count_end,
    count_round,
    decide,
    decide_by_number,
    not_met,
)
from tidegate.runners.engine.iteration.rounds import BodyGraph, MakeGraph, Rounds
from tidegate.runners.engine.iteration.snapshot import LoopSnapshot
from tidegate.runners.engine.iteration.solution import Solution, merging_function
from tidegate.runners.engine.life_cycle import OncePerLoop
from tidegate.runners.engine.loop_tables import LoopTables
from tidegate.runners.engine.operator import Context, Emitted, Operator
from tidegate.runners.plan import Loop
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import RunError, counted
from tidegate.sdk.metrics import MetricCells, collecting, in_step
from tidegate.sdk.portable.loop_variable import LoopVariable
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS


class LoopOperator(Operator):
    """Runs all rounds of a loop when its inputs have ended; so rounds are bounded input to the body.

    Between two rounds it can be paused and its state saved: rounds that are done are not run again.
    """

    def __init__(self, loop: Loop, context: Context, make_graph: MakeGraph) -> None:
        self.loop = loop
        self.node = loop.node
        self.context = context
        self._rounds = Rounds(loop, make_graph)
        self._life = context.life if isinstance(context.life, OncePerLoop) else OncePerLoop()
        """In a loop within a loop that of the outermost one, which is also the one to end it."""
        self._stores = len(self.node.inputs) + 2 * len(self.node.variables)
        """How many stores there are at most: those of the inputs, and of the variables before and after a round."""
        self._inputs = {collection: self._store() for collection in self.node.inputs}
        self._variables: list[BlockStore | Solution] | None = None
        """The elements of the loop variables, once the first round has begun."""
        self._tables: LoopTables | None = None
        self._done = 0
        self._is_over = self._paused = False
        self._labels = loop.labels

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        self._add(self._inputs[collection], block)
        return iter(())

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        if micros >= MAX_MICROS and not self._is_over:
            self._paused = False
            yield from self._run()

    def hold(self) -> int:
        return MAX_MICROS if self._is_over else MIN_MICROS

    @property
    def paused(self) -> bool:
        return self._paused

    def close(self) -> None:
        self._end_life()

    def snapshot(self, keys: Collection[Any] | None = None) -> LoopSnapshot:
        return LoopSnapshot(
            {collection: store.snapshot() for collection, store in self._inputs.items()},
            None if self._variables is None else [store.snapshot() for store in self._variables],
            self._done,
            self._is_over,
            self._paused,
        )

    def restore(self, state: LoopSnapshot) -> None:
        self._check(state)
        for collection, blocks in state.inputs.items():
            self._inputs[collection].restore(blocks)
        if state.variables is not None:
            self._variables = [self._elements_of(variable) for variable in self.node.variables]
            for elements, blocks in zip(self._variables, state.variables, strict=True):
                elements.restore(blocks)
        self._done, self._is_over, self._paused = state.done, state.is_over, state.paused

    def _check(self, state: LoopSnapshot) -> None:
        """RunError if the snapshot is that of a loop over other collections, whose elements would have no place."""
        before, now = sorted(state.inputs), sorted(self._inputs)
        variables = self.node.variables
        if before != now or (state.variables is not None and len(state.variables) != len(variables)):
            raise located(
                RunError(
                    f"the snapshot is that of a loop with the inputs {', '.join(before)}"
                    + (f" and {counted(len(state.variables), 'variable')}" if state.variables is not None else "")
                    + f", and the loop has the inputs {', '.join(now)} and {counted(len(variables), 'variable')} now: "
                    "change it back, or start from no snapshot"
                ),
                self.node.label,
                self.node.where,
            )

    # -- rounds

    def _run(self) -> Iterator[Emitted]:
        """Run the rounds that are left, and emit the results; or, if asked to, pause before a round."""
        decision = decide_by_number(self.node, self._done)
        while decision == "again":
            if self.context.should_pause():
                self._paused = True
                return
            decision = yield from self._round(self._done + 1)
        yield from self._end(decision)

    def _round(self, number: int) -> Generator[Emitted, None, Decision]:
        began = time.perf_counter()
        node, results = self.node, self.loop.results
        before = self._begin() if self._variables is None else self._variables
        after = [self._store() for _ in node.variables]
        emitted = dict.fromkeys(results, 0)
        leaving: list[Emitted] = []
        receivers: dict[str, list[Callable[[Block], None]]] = {
            result: [partial(_count, emitted, result)] for result in results
        }
        for variable, store in zip(node.variables, after, strict=True):
            if variable.form != "changes":
                receivers[variable.after].append(partial(self._add, store))
        for result, output in zip(node.gives, node.outputs[len(node.variables) :], strict=True):
            receivers[result].append(partial(_leave, leaving, output.collection))
        metrics = MetricCells()
        if self._tables is None:
            self._tables = self._rounds.keep_tables(self._inputs, self._context_of(number, metrics))
        self._tables = replace(self._tables, solutions=self._solutions(before))
        graph = self._rounds.graph(number, self._context_of(number, metrics), receivers)
        try:
            with collecting(metrics):
                graph.open()
            for _ in self._driving(graph, before, metrics):
                yield from leaving
                leaving.clear()
                yield node.outputs[0].collection, _NOTHING
            yield from leaving
            with collecting(metrics):
                graph.close()
        except BaseException:
            graph.abandon()
            raise
        if number == 1:
            for variable in node.variables:
                if variable.start not in self._rounds.inputs:
                    self._inputs[variable.start].clear()
        with collecting(metrics), in_step(node.label):
            self._update_solutions(before, after)
        emitted |= {variable.before: store.elements for variable, store in zip(node.variables, after, strict=True)}
        fed_back = sum(
            emitted[variable.before]
            for variable in node.variables
            if variable.form != "solution" and variable.after != variable.before
        )
        for at, old in enumerate(before):
            if isinstance(old, Solution):
                after[at].clear()
            elif old not in self._inputs.values():
                old.clear()
        self._variables = [old if isinstance(old, Solution) else new for old, new in zip(before, after, strict=True)]
        self._done = number
        self._record(number, metrics, fed_back, time.perf_counter() - began)
        return decide(node, number, emitted)

    def _driving(
        self, graph: BodyGraph, before: Sequence[BlockStore | Solution], metrics: MetricCells
    ) -> Iterator[None]:
        """Run a round, and yield whenever it can be interrupted. Metrics of the author's code go to `metrics`."""
        elements: dict[str, Iterable[Block]] = dict(self._inputs)
        for variable, store in zip(self.node.variables, before, strict=True):
            elements[variable.before] = () if isinstance(store, Solution) else store
        event = self._rounds.run(graph, elements)
        while True:
            with collecting(metrics):
                if next(event, _ENDED) is _ENDED:
                    return
            yield

    # -- solutions

    def _begin(self) -> list[BlockStore | Solution]:
        """The loop variables as the loop starts."""
        found: list[BlockStore | Solution] = []
        for variable in self.node.variables:
            start = self._inputs[variable.start]
            elements = self._elements_of(variable) if variable.form == "solution" else start
            if isinstance(elements, Solution):
                elements.fill(start)
            found.append(elements)
        return found

    def _elements_of(self, variable: LoopVariable) -> BlockStore | Solution:
        """An empty store for the elements of a loop variable."""
        if variable.form != "solution":
            return self._store()
        node = self.node
        return Solution(
            merging_function(node.merge),
            None if node.changed is None else node.changed.load(),
            lambda error, key: user_error(error, step=node.label, where=node.where, key=key),
        )

    def _solutions(self, variables: Sequence[BlockStore | Solution]) -> Mapping[str, Mapping[Any, Mapping[Any, Any]]]:
        """What lookups of this loop, and of those around it, read."""
        own = {
            variable.before: elements.tables
            for variable, elements in zip(self.node.variables, variables, strict=True)
            if isinstance(elements, Solution)
        }
        return {**self.context.tables.solutions, **own}

    def _update_solutions(self, before: Sequence[BlockStore | Solution], after: Sequence[BlockStore]) -> None:
        """Merge what a round leaves into the solutions, and store what this changes as what comes back."""
        variables = self.node.variables
        for variable, solution, updates in zip(variables, before, after, strict=True):
            if isinstance(solution, Solution):
                changes = [
                    store
                    for each, store in zip(variables, after, strict=True)
                    if each.form == "changes" and each.after == variable.after
                ]
                for block in updates:
                    for changed in solution.update(block):
                        for store in changes:
                            self._add(store, changed)

    def _end(self, decision: Decision) -> Iterator[Emitted]:
        node = self.node
        count_end(self.context.metrics, node, self._done, decision)
        if decision == "unmet" and node.strict:
            raise final(not_met(node, self._done))
        left = self._begin() if self._variables is None else self._variables
        for store, output in zip(left, node.outputs, strict=False):
            self.context.count(node.label, "elements_out", store.elements)
            for block in store:
                yield output.collection, block
        self._is_over, self._tables = True, None
        for store in (*self._inputs.values(), *left):
            store.clear()
        self._end_life()

    def _end_life(self) -> None:
        if self._life is not self.context.life:
            self._life.end()

    def _record(self, number: int, metrics: MetricCells, fed_back: int, seconds: float) -> None:
        """Add a round's metrics to those of the run, and keep them by round as well."""
        count_round(self.context.metrics, self.node, number, fed_back, seconds, metrics, self._labels)

    def _context_of(self, number: int, metrics: MetricCells) -> Context:
        checks = self.context.checks
        tables = LoopTables() if self._tables is None else self._tables
        return replace(
            self.context,
            metrics=metrics,
            checks=checks if number == 1 or (checks is not None and checks.mode == "all") else None,
            wrap=None,
            wrap_keyed=None,
            wake=None,
            should_pause=_never,
            must_buffer=_never,
            life=self._life,
            tables=tables,
        )

    def _add(self, store: BlockStore, block: Block) -> None:
        """Store a block; an error names the loop."""
        try:
            store.add(block)
        except RunError as error:
            done = counted(self._done, "round")
            raise located(
                RunError(
                    f"{error}. The loop holds {store.elements:,} elements of a collection, after {done}: if it "
                    "multiplies what goes round, filter what its body returns, or give it fewer rounds"
                ),
                self.node.label,
                self.node.where,
            ) from error

    def _store(self) -> BlockStore:
        """A store with its share of a quarter of the memory budget, which is what all stores of the loop have."""
        return BlockStore(max(1, self.context.memory_budget // (4 * self._stores)), lambda: self.context.temp_dir())


_ENDED: Final = object()
_NOTHING: Final = Block([])


def _never() -> bool:
    return False


def _count(emitted: dict[str, int], collection: str, block: Block) -> None:
    emitted[collection] += len(block)


def _leave(leaving: list[Emitted], collection: str, block: Block) -> None:
    leaving.append((collection, block))
