"""A warning for a script that writes a pipeline and never runs any, which does nothing and looks like success.

A script that runs one of its pipelines may keep others, for `tidegate run script.py:name` to find.
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
class Fate:
    """What has become of a pipeline: how many steps it has got. `used` says whether it, or another one, was run or
    asked for as data."""

    used: ClassVar[bool] = False

    name: str
    where: Where
    steps: int = 0
    process: int = field(default_factory=os.getpid)

    def watch(self, pipeline: object) -> None:
        """Warn when the pipeline is gone, or the process ends, if it was never used by then."""
        weakref.finalize(pipeline, self._gone)

    def _gone(self) -> None:
        failed = hasattr(sys, "last_value")  # the script ended by an exception, which says enough
        if self.steps and not Fate.used and not failed and self.process == os.getpid():
            steps = "1 step" if self.steps == 1 else f"{self.steps} steps"
            warn(
                f"the pipeline {self.name!r} has {steps} and was never run: call run(), or write its steps inside "
                "`with tg.Pipeline() as p:`",
                self.where,
            )
