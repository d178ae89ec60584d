"""Failures described in one line of a log: errors, exit statuses, signals."""

from __future__ import annotations

import os
import signal

from tidegate.sdk.errors import TidegateError


def one_line(error: BaseException) -> str:
    """An error in one line: its message, which names the step, and its type unless it is one of ours."""
    lines = str(error).splitlines()[:2]
    message = ", ".join(line.strip() for line in lines if line.strip())
    return message if message and isinstance(error, TidegateError) else f"{type(error).__name__}: {message}"


def describe_exit(status: int) -> str:
    """Describe how a process ended that failed; `status` is what `os.waitpid` returned.

    >>> describe_exit(3 << 8), describe_exit(15)
    ('its process ended with exit code 3', 'killed by SIGTERM')
    """
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"its process ended with exit code {code}"
    name = signal_name(-code)
    return f"killed by {name}" + (": perhaps the machine is out of memory" if name == "SIGKILL" else "")


def signal_name(number: int) -> str:
    """The name of a signal. Python itself names only the first and the last real-time signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        first = getattr(signal, "SIGRTMIN", number + 1)
        return f"SIGRTMIN+{number - first}" if number > first else f"signal {number}"
