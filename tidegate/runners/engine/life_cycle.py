"""When `setup` and `teardown` of the author's functions run: with each operator, or once for all rounds of a loop."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.runners.engine.errors.attribution import close_all


class LifeCycle:
    """Runs the author's `setup` when an operator opens, and `teardown` when it closes."""

    def set_up(self, step: str, call: Callable[[], object]) -> None:
        """Set up the functions of a step."""
        call()

    def tear_down(self, step: str, call: Callable[[], object]) -> None:
        """Tear down the functions of a step."""
        call()


class OncePerLoop(LifeCycle):
    """Sets a step's functions up in the first round that has the step, and tears them down when the loop ends."""

    def __init__(self) -> None:
        self._teardowns: dict[str, Callable[[], object] | None] = {}

    def set_up(self, step: str, call: Callable[[], object]) -> None:
        if step not in self._teardowns:
            self._teardowns[step] = None
            call()

    def tear_down(self, step: str, call: Callable[[], object]) -> None:
        self._teardowns[step] = call

    def end(self) -> None:
        """Tear all functions down, even if one of them fails."""
        teardowns, self._teardowns = self._teardowns, {}
        close_all([call for call in teardowns.values() if call is not None])
