"""The signals that end a run: SIGINT (Ctrl-C), and SIGTERM, which supervisors, containers and `kill` send."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

import click

INTERRUPTED: Final = 128 + signal.SIGINT
TERMINATED: Final = 128 + signal.SIGTERM
"""The exit codes that shells use for a process ended by SIGINT or SIGTERM."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with the message to print about the run that it ended."""

    def __init__(self, *lines: str) -> None:
        super().__init__(*lines)
        self.lines = lines


@contextmanager
def ending_at_sigterm() -> Iterator[None]:
    """Within this context, each SIGTERM has the effect of a Ctrl-C.

    The process then exits with TERMINATED, or, if the run fails while it ends, with the code of that failure. A handler
    that the script has installed for SIGTERM is not replaced.
    """
    received = False

    def end(*_: object) -> NoReturn:
        nonlocal received
        received = True
        raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    except KeyboardInterrupt:
        if not received:
            raise
        click.echo("Terminated!", err=True)
    finally:
        if signal.getsignal(signal.SIGTERM) is end:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if received:
        sys.exit(TERMINATED)
