"""The fingerprint of a job: two runs are the same job if their pipelines and result-changing options are equal.

Options that only decide how it runs may differ: workers, memory, the checkpoint interval, where progress is printed.
"""

from __future__ import annotations

from typing import Final

from tidegate.sdk.options.model import PipelineOptions, flags
from tidegate.sdk.portable.fingerprint import digest, fingerprint
from tidegate.sdk.portable.model import Pipeline

_DECIDE: Final = ("mode", "run_for", "type_check", "from_savepoint", "allow_dropped_state", "max_parallelism")


def parts_of(pipeline: Pipeline, options: PipelineOptions) -> dict[str, str]:
    """A digest of each part, by its name for people: steps, the author's flags, other options."""
    parts = fingerprint(pipeline)
    for flag in flags(type(options)):
        if flag.group == "author" or flag.name in _DECIDE:
            value = getattr(options, flag.name)
            secret = hasattr(value, "get_secret_value")
            parts[f"option {flag.spelling}"] = digest("a secret" if secret else value)
    return parts
