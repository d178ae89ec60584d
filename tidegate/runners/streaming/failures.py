"""How a failure is told in a line of the log."""

from __future__ import annotations

from tidegate.sdk.errors import TidegateError


def in_short(error: BaseException) -> str:
    """An error in one line: what it says, and of which step."""
    lines = str(error).splitlines()[:2]
    told = ", ".join(line.strip() for line in lines if line.strip())
    return told if told and isinstance(error, TidegateError) else f"{type(error).__name__}: {told}"
