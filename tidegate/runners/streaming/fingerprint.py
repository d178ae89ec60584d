"""What makes two runs the same: the pipeline, and of the options those that decide what comes of it.

How it is run (by how many workers, with how much memory, how often it takes checkpoints, where it prints) may differ.
"""

from __future__ import annotations

from typing import Final

from tidegate.sdk.options import PipelineOptions, flags
from tidegate.sdk.portable.fingerprint import digest, fingerprint
from tidegate.sdk.portable.pipeline import Pipeline

_DECIDE: Final = ("mode", "run_for", "type_check", "from_savepoint", "allow_dropped_state", "max_parallelism")


def parts_of(pipeline: Pipeline, options: PipelineOptions) -> dict[str, str]:
    """A digest of each part, under what people call it: steps, the author's flags, and others that decide."""
    parts = fingerprint(pipeline)
    for flag in flags(type(options)):
        if flag.group == "author" or flag.name in _DECIDE:
            value = getattr(options, flag.name)
            secret = hasattr(value, "get_secret_value")
            parts[f"option {flag.spelling}"] = digest("a secret" if secret else value)
    return parts
