"""A warning for a script that writes a pipeline and never runs it, which does nothing and looks like success."""

from __future__ import annotations

import os
import sys
import weakref
from dataclasses import dataclass, field

from tidegate.sdk.arguments import warn
from tidegate.sdk.functions import Where


@dataclass(slots=True)
class Fate:
    """What has become of a pipeline: its steps, and whether it was run, or asked for as data."""

    name: str
    where: Where
    steps: int = 0
    used: bool = False
    process: int = field(default_factory=os.getpid)

    def watch(self, pipeline: object) -> None:
        """Warn when the pipeline is gone, or the process ends, if it was never used by then."""
        weakref.finalize(pipeline, self._gone)

    def _gone(self) -> None:
        failed = hasattr(sys, "last_value")  # the script ended by an exception, which says enough
        if self.steps and not self.used and not failed and self.process == os.getpid():
            steps = "1 step" if self.steps == 1 else f"{self.steps} steps"
            warn(
                f"the pipeline {self.name!r} has {steps} and was never run: call run(), or write its steps inside "
                "`with tg.Pipeline() as p:`",
                self.where,
            )
