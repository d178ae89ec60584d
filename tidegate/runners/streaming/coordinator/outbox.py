"""What a coordinator wants done, in order, as it comes to it while it handles one event."""

from __future__ import annotations

from tidegate.runners.streaming.protocol.coordinator_io import Action, Report, Send
from tidegate.runners.streaming.protocol.coordinator_io import JobState as State
from tidegate.runners.streaming.protocol.worker_messages import ToWorker


class Outbox:
    """Actions that wait to be taken; `workers` is how many there are to send to."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._actions: list[Action] = []

    def add(self, action: Action) -> None:
        """One more thing to do."""
        self._actions.append(action)

    def send(self, worker: int, message: ToWorker) -> None:
        """Tell a worker."""
        self._actions.append(Send(worker, message))

    def send_all(self, message: ToWorker) -> None:
        """Tell all workers."""
        for worker in range(self._workers):
            self.send(worker, message)

    def report(self, state: State, text: str = "") -> None:
        """Tell whoever watches the job."""
        self._actions.append(Report(state, text))

    def take(self) -> list[Action]:
        """All so far; nothing is left."""
        taken, self._actions = self._actions, []
        return taken
