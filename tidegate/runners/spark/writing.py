"""The sinks of a run: attempts in the tasks of the last level, one commit by the driver."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterable
from typing import Any, Final

from tidegate.runners.engine.blame import located, rethrow, user_error
from tidegate.runners.engine.graph import quietly
from tidegate.runners.plan import Step
from tidegate.sdk.block import Block
from tidegate.sdk.errors import TidegateError
from tidegate.sdk.portable.pipeline import Write
from tidegate.sdk.sinks import Attempt, Committable, Sink


class Writing:
    """One sink in one task: the attempts of this partition's shards, fed in turn.

    Without a number of shards each partition that has elements writes one, and the first one always: nothing written
    is a result too.
    """

    def __init__(self, step: Step, run_id: str, partition: int, partitions: int) -> None:
        node = step.tail
        assert isinstance(node, Write)
        self.step = step
        self._node = node
        self._run_id = run_id
        self._sink: Sink[Any] = node.sink.load()
        self._shards = list(range(partition, node.shards, partitions)) if node.shards else [partition]
        self._always = bool(node.shards) or partition == 0
        self._attempts: list[Attempt[Any]] = []
        self._next = 0

    def write(self, block: Block) -> None:
        """A block to the next attempt in turn."""
        if not len(block):
            return
        attempts = self._open()
        _call(self._node, attempts[self._next].write, block.values, method="write")
        self._next = (self._next + 1) % len(attempts)

    def prepare(self) -> list[Committable]:
        """Everything has been written: turn it into what a commit makes visible."""
        committables: list[Committable] = []
        for attempt in self._open() if self._always else self._attempts:
            committables += _call(self._node, attempt.prepare, method="prepare")
        attempts, self._attempts = self._attempts, []
        for attempt in attempts:
            _call(self._node, attempt.close, method="close")
        return committables

    def abandon(self) -> None:
        """The task has failed: throw away what was written, whatever that says."""
        for attempt in self._attempts:
            quietly(attempt.close)
        self._attempts = []

    def _open(self) -> list[Attempt[Any]]:
        while len(self._attempts) < len(self._shards):
            task = self._shards[len(self._attempts)]
            self._attempts.append(_call(self._node, self._sink.attempt, self._run_id, task, method="attempt"))
        return self._attempts


class Committing:
    """One sink on the driver: what the tasks prepared is committed when all have succeeded.

    `noted`: a manifest says that it is to be committed. Then it will be, by a later run if not by this one.
    """

    def __init__(self, step: Step, run_id: str) -> None:
        node = step.tail
        assert isinstance(node, Write)
        self._node = node
        self._run_id = run_id
        self.committables: list[Committable] = []
        self.noted = False
        self._done = False

    def commit(self) -> None:
        """Make everything visible."""
        _call(self._node, self._sink().commit, self._run_id, self.committables, method="commit")
        self._done = True

    def sweep(self) -> None:
        """Remove what this run wrote and will not commit: strays of failed and of speculative tasks."""
        if self.noted and not self._done:
            return
        quietly(lambda: self._sink().abort(self._run_id))

    def _sink(self) -> Sink[Any]:
        sink: Sink[Any] = self._node.sink.load()
        return sink


_failed: Final[list[Committing]] = []


def sweep_later(sinks: Iterable[Committing]) -> None:
    """Sweep a failed run's sinks once more at the next run, or at exit: its last tasks may write on for a while."""
    _failed.extend(sinks)


@atexit.register
def sweep_late() -> None:
    """Sweep what runs that failed have left since."""
    while _failed:
        _failed.pop().sweep()


def _call(node: Write, call: Callable[..., Any], *args: Any, method: str) -> Any:
    try:
        return call(*args)
    except TidegateError as error:
        rethrow(located(error, node.label, node.where))
    except Exception as error:
        rethrow(user_error(error, step=node.label, where=node.where, method=method))
