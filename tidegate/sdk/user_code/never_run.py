"""A warning for a script that builds pipelines but runs none of them, which would look like success.

A script that runs one of its pipelines may leave others to `tidegate run script.py:name`.
"""

from __future__ import annotations

import os
import sys
import weakref
from dataclasses import dataclass, field
from typing import ClassVar

from tidegate.sdk.user_code.frames import Where
from tidegate.sdk.user_code.validation import warn


@dataclass(slots=True)
class PipelineUsage:
    """The number of a pipeline's steps, and whether it or any other pipeline of the process was `used`: run or
    compiled."""

    used: ClassVar[bool] = False

    name: str
    where: Where
    steps: int = 0
    process: int = field(default_factory=os.getpid)

    def watch(self, pipeline: object) -> None:
        """Warn when the pipeline is garbage-collected, or the process ends, if no pipeline was used by then."""
        weakref.finalize(pipeline, self._warn_if_unused)

    def _warn_if_unused(self) -> None:
        failed = hasattr(sys, "last_value")  # the script ended with an exception, which needs no further warning
        if self.steps and not PipelineUsage.used and not failed and self.process == os.getpid():
            steps = "1 step" if self.steps == 1 else f"{self.steps} steps"
            warn(
                f"the pipeline {self.name!r} has {steps} and was never run: call run(), or write its steps inside "
                "`with tg.Pipeline() as p:`",
                self.where,
            )
