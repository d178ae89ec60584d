"""The sinks of a run: attempts that are prepared together, and committed when everything has succeeded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tidegate.runners.engine.blame import located, rethrow, user_error
from tidegate.runners.engine.graph import quietly
from tidegate.runners.plan import Step
from tidegate.sdk.block import Block
from tidegate.sdk.errors import TidegateError
from tidegate.sdk.portable.pipeline import Write
from tidegate.sdk.sinks import Attempt, Committable, Sink


class Writing:
    """One sink of the run. There are as many attempts as shards were asked for, fed in turn."""

    def __init__(self, step: Step, run_id: str) -> None:
        node = step.tail
        assert isinstance(node, Write)
        self.step = step
        self.node = node
        self.run_id = run_id
        self.sink: Sink[Any] = node.sink.load()
        self._attempts: list[Attempt[Any]] = []
        self._next = 0

    def write(self, block: Block) -> None:
        """A block to the next attempt in turn."""
        attempts = self._open()
        self._call(attempts[self._next].write, block.values, method="write")
        self._next = (self._next + 1) % len(attempts)

    def prepare(self) -> list[Committable]:
        """Everything has been written: turn it into what a commit makes visible."""
        committables: list[Committable] = []
        for attempt in self._open():
            committables += self._call(attempt.prepare, method="prepare")
        for attempt in self._attempts:
            self._call(attempt.close, method="close")
        self._attempts = []
        return committables

    def commit(self, committables: list[Committable]) -> None:
        """Make it visible."""
        self._call(self.sink.commit, self.run_id, committables, method="commit")

    def abort(self) -> None:
        """The run has failed: leave nothing behind, whatever that says."""
        for attempt in self._attempts:
            quietly(attempt.close)
        self._attempts = []
        quietly(lambda: self.sink.abort(self.run_id))

    def _open(self) -> list[Attempt[Any]]:
        while len(self._attempts) < max(1, self.node.shards):
            task = len(self._attempts)
            self._attempts.append(self._call(self.sink.attempt, self.run_id, task, method="attempt"))
        return self._attempts

    def _call(self, call: Callable[..., Any], *args: Any, method: str) -> Any:
        try:
            return call(*args)
        except TidegateError as error:
            rethrow(located(error, self.node.label, self.node.where))
        except Exception as error:
            rethrow(user_error(error, step=self.node.label, where=self.node.where, method=method))


def commit_all(sinks: Iterable[Writing]) -> None:
    """Prepare every sink before any is committed: one that can't be prepared leaves all unchanged."""
    prepared = [(writing, writing.prepare()) for writing in sinks]
    for writing, committables in prepared:
        writing.commit(committables)
