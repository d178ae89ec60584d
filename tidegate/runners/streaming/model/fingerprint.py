"""What makes two runs the same: the pipeline, and the options that decide its results.

How it is run may differ: with how many workers and how much memory, how often it takes checkpoints, where it prints.
"""

from __future__ import annotations

from typing import Final

from tidegate.sdk.options.model import PipelineOptions, flags
from tidegate.sdk.portable.fingerprint import digest, fingerprint
from tidegate.sdk.portable.model import Pipeline

_DECIDE: Final = ("mode", "run_for", "type_check", "from_savepoint", "allow_dropped_state", "max_parallelism")


def parts_of(pipeline: Pipeline, options: PipelineOptions) -> dict[str, str]:
    """A digest of each part under the name that people know it by: steps, the author's flags, and other options."""
    parts = fingerprint(pipeline)
    for flag in flags(type(options)):
        if flag.group == "author" or flag.name in _DECIDE:
            value = getattr(options, flag.name)
            secret = hasattr(value, "get_secret_value")
            parts[f"option {flag.spelling}"] = digest("a secret" if secret else value)
    return parts
