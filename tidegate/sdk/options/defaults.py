"""The defaults of the common options, as plain data.

Most pipelines are run without options, and such a run imports no pydantic, which would be a third of its time.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.sdk.time import Duration

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class DefaultOptions:
    """The options of a run whose author gave none, or only a runner. `PipelineOptions` says what each means; its
    defaults are these."""

    runner: str = "direct"
    checks: Literal["sample", "all", "off"] = "sample"
    memory_budget: int | None = None
    temp_dir: Path | None = None
    type_check: Literal["build", "runtime", "off"] = "build"
    allow_unsafe_triggers: bool = False
    mode: Literal["batch", "streaming"] = "batch"
    run_for: Duration | None = None
    max_end_timers: int = 1_000_000
    progress: Literal["auto", "on", "off"] = "auto"
    inline: Literal["on", "off", "always"] = "on"

    def view_as(self, model: type[M]) -> M:
        """The defaults of `model`. OptionsError if it requires a flag."""
        return model()


DEFAULTS: Final = DefaultOptions()


def replaced(options: Any, **values: Any) -> Any:
    """The same options, or defaults, with other values of these flags."""
    return replace(options, **values) if isinstance(options, DefaultOptions) else options.model_copy(update=values)


def default_memory_budget() -> int:
    """Bytes: a quarter of what this machine, or the control group the process is confined to, has."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path) as limit:
                total = min(total, int(limit.read()))
        except (OSError, ValueError):  # not Linux, another cgroup version, or "max": no limit there
            continue
    return total // 4


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
