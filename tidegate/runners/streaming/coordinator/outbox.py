"""The actions that a coordinator collects, in order, while it handles one event."""

from __future__ import annotations

from tidegate.runners.streaming.protocol.coordinator_io import Action, Report, Send
from tidegate.runners.streaming.protocol.coordinator_io import JobState as State
from tidegate.runners.streaming.protocol.worker_messages import ToWorker


class Outbox:
    """Actions to perform. `workers`: the number of workers that `send_all` sends to."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._actions: list[Action] = []

    def add(self, action: Action) -> None:
        """Add an action."""
        self._actions.append(action)

    def send(self, worker: int, message: ToWorker) -> None:
        """Send a message to one worker."""
        self._actions.append(Send(worker, message))

    def send_all(self, message: ToWorker) -> None:
        """Send a message to every worker."""
        for worker in range(self._workers):
            self.send(worker, message)

    def report(self, state: State, text: str = "") -> None:
        """Report the job's state to its clients."""
        self._actions.append(Report(state, text))

    def take(self) -> list[Action]:
        """Remove and return all actions."""
        actions, self._actions = self._actions, []
        return actions
