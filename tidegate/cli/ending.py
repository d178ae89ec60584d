"""Signals that end a run: Ctrl-C, and SIGTERM, by which supervisors, containers and `kill` ask for its end."""

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
"""The exit codes by which shells tell them."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with the lines to say of what it has ended."""

    def __init__(self, *lines: str) -> None:
        super().__init__(*lines)
        self.lines = lines


@contextmanager
def ending_at_sigterm() -> Iterator[None]:
    """Inside, SIGTERM does what Ctrl-C does, and a second one what a second Ctrl-C does.

    The process then exits with TERMINATED; one whose run fails at it, with that failure's code. What a script has
    arranged for itself stays as it is.
    """
    came = False

    def end(*_: object) -> NoReturn:
        nonlocal came
        came = True
        raise KeyboardInterrupt

    mine = threading.current_thread() is threading.main_thread()
    if not mine or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    except KeyboardInterrupt:
        if not came:
            raise
        click.echo("Terminated!", err=True)
    finally:
        if signal.getsignal(signal.SIGTERM) is end:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if came:
        sys.exit(TERMINATED)
