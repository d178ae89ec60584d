"""One run on the direct runner: operators in one process, each block pushed through before the next is pulled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidegate.runners.engine.blame import guarded, located, user_error
from tidegate.runners.engine.build import build
from tidegate.runners.engine.operator import Context, Operator
from tidegate.runners.plan import Plan, Step
from tidegate.sdk.block import Block
from tidegate.sdk.errors import TidegateError
from tidegate.sdk.portable.pipeline import Create, Read, Write
from tidegate.sdk.sinks import Attempt, Committable, Sink
from tidegate.sdk.sources import Source
from tidegate.sdk.values import TimestampedValue


class Execution:
    """A plan at work. `run` returns when everything is written and committed, or raises and leaves nothing behind."""

    def __init__(self, plan: Plan, context: Context) -> None:
        import uuid

        self.plan = plan
        self.context = context
        self.run_id = uuid.uuid4().hex[:12]
        self._operators: dict[int, Operator] = {}
        self._sinks: dict[int, _Writing] = {}
        self._targets: dict[str, list[int]] = {}
        for edge in plan.edges:
            self._targets.setdefault(edge.collection, []).append(edge.target)
        self._waiting = {step.id: len({edge.source for edge in plan.inputs(step.id)}) for step in plan.steps}

    def run(self) -> None:
        """Read all sources, region by region, to the end."""
        opened: list[Operator] = []
        try:
            for step in self.plan.steps:
                if step.is_sink:
                    self._sinks[step.id] = _Writing(step, self.run_id)
                elif not step.is_source:
                    operator = self._operators[step.id] = build(step, self.plan, self.context)
                    opened.append(operator)
                    operator.open()
            for step in self._sources():
                self._read(step)
                self._ended(step.id)
            for writing in self._sinks.values():
                writing.commit()
        except BaseException:
            for writing in self._sinks.values():
                writing.abort()
            _close_quietly(opened)
            raise
        for operator in opened:
            operator.close()

    def _sources(self) -> Iterator[Step]:
        for region in self.plan.regions:
            for step in self.plan.steps:
                if step.stage in region and step.is_source:
                    yield step

    # -- one source

    def _read(self, step: Step) -> None:
        collection = step.head.output()
        size = self.context.block_size
        match step.head:
            case Create(values=values):
                elements = values.load()
                for start in range(0, len(elements), size):
                    self._emit(step, collection, created(elements[start : start + size]))
            case Read() as node:
                source: Source[Any] = node.source.load()
                for split in source.splits(1):
                    self._read_split(step, node, source, split)

    def _read_split(self, step: Step, node: Read, source: Source[Any], split: Any) -> None:
        reader = guarded(source.reader, split, step=node.label, where=node.where, method="reader")
        try:
            while True:
                try:
                    batch = reader.read(self.context.block_size)
                except TidegateError as error:
                    raise located(error, node.label, node.where) from error.__cause__
                except Exception as error:
                    raise user_error(error, step=node.label, where=node.where, method="read") from error.__cause__
                if len(batch.block):
                    self._emit(step, node.output(), batch.block)
                if batch.end:
                    return
        finally:
            reader.close()

    def _emit(self, step: Step, collection: str, block: Block) -> None:
        self.context.count(step.label, "elements_out", len(block))
        self._push(collection, block)

    # -- blocks and ends

    def _push(self, collection: str, block: Block) -> None:
        for target in self._targets.get(collection, ()):
            writing = self._sinks.get(target)
            if writing is not None:
                writing.write(block)
                continue
            for made, part in self._operators[target].process(block, collection):
                self._push(made, part)

    def _ended(self, source: int) -> None:
        """Input `source` has ended for all that read it: what has no more input finishes, and ends in turn."""
        for target in dict.fromkeys(edge.target for edge in self.plan.outputs(source)):
            self._waiting[target] -= 1
            if self._waiting[target]:
                continue
            operator = self._operators.get(target)
            if operator is not None:
                for made, part in operator.finish():
                    self._push(made, part)
            self._ended(target)


def created(elements: Any) -> Block:
    """Elements of a `Create` as a block; `TimestampedValue`s give their timestamps."""
    if not any(type(element) is TimestampedValue for element in elements):
        return Block(elements)
    from tidegate.sdk.time import MIN_MICROS

    values = [e.value if type(e) is TimestampedValue else e for e in elements]
    return Block(values, [e.micros if type(e) is TimestampedValue else MIN_MICROS for e in elements])


class _Writing:
    """One sink of the run: a single attempt, committed when everything has succeeded."""

    def __init__(self, step: Step, run_id: str) -> None:
        node = step.tail
        assert isinstance(node, Write)
        self.node = node
        self.run_id = run_id
        self.sink: Sink[Any] = node.sink.load()
        self._attempts: list[Attempt[Any]] = []
        self._next = 0

    def write(self, block: Block) -> None:
        """A block to the next attempt in turn; there are as many attempts as shards were asked for."""
        attempts = self._open()
        self._call(attempts[self._next].write, block.values, method="write")
        self._next = (self._next + 1) % len(attempts)

    def commit(self) -> None:
        """Everything has been written: make it visible."""
        committables: list[Committable] = []
        for attempt in self._open():
            committables += self._call(attempt.prepare, method="prepare")
            self._call(attempt.close, method="close")
        self._attempts = []
        self._call(self.sink.commit, self.run_id, committables, method="commit")

    def abort(self) -> None:
        """The run has failed: leave nothing behind."""
        for attempt in self._attempts:
            _quietly(attempt.close)
        _quietly(lambda: self.sink.abort(self.run_id))

    def _open(self) -> list[Attempt[Any]]:
        if not self._attempts:
            for task in range(max(1, self.node.shards)):
                self._attempts.append(self._call(self.sink.attempt, self.run_id, task, method="attempt"))
        return self._attempts

    def _call(self, call: Any, *args: Any, method: str) -> Any:
        try:
            return call(*args)
        except TidegateError as error:
            raise located(error, self.node.label, self.node.where) from error.__cause__
        except Exception as error:
            raise user_error(error, step=self.node.label, where=self.node.where, method=method) from error.__cause__


def _close_quietly(operators: list[Operator]) -> None:
    """Tear down after a failure, which is what the author must hear of, not what a teardown says after it."""
    for operator in operators:
        _quietly(operator.close)


def _quietly(call: Any) -> None:
    try:
        call()
    except Exception:
        return


