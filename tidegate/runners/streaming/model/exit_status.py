"""How a failure is told in a line of the log."""

from __future__ import annotations

import os
import signal

from tidegate.sdk.errors import TidegateError


def in_short(error: BaseException) -> str:
    """An error in one line: what it says, and of which step."""
    lines = str(error).splitlines()[:2]
    told = ", ".join(line.strip() for line in lines if line.strip())
    return told if told and isinstance(error, TidegateError) else f"{type(error).__name__}: {told}"


def how_ended(status: int) -> str:
    """How a process has ended that did not end well; `status` as `os.waitpid` gives it."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"its process ended with exit code {code}"
    name = signal_name(-code)
    return f"killed by {name}" + (": perhaps the machine is out of memory" if name == "SIGKILL" else "")


def signal_name(number: int) -> str:
    """What a signal is called; Python has names for the first and the last real-time signal alone."""
    try:
        return signal.Signals(number).name
    except ValueError:
        first = getattr(signal, "SIGRTMIN", number + 1)
        return f"SIGRTMIN+{number - first}" if number > first else f"signal {number}"
