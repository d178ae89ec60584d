"""Tells people what a pipeline waits for if a store does not answer: clients may try again for minutes first."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tidegate.sdk.secrets.redaction import redacted

SECONDS: Final = 6.0
"""How long an answer is waited for before people are told. With what it takes to load a client and a pipeline, that is
within ten seconds."""

ADDRESS: Final = "check the address of the store (its host and port, its endpoint) and the network"


@contextmanager
def told_if_slow(place: str) -> Iterator[None]:
    """A context for a request to a place, a URL or a path: a warning is logged if it lasts longer than 6 s.

    No thread is left when it ends, so that the process can be forked.
    """
    if "://" not in place:
        yield
        return
    timer = threading.Timer(SECONDS, _tell, [place])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def _tell(place: str) -> None:
    import logging

    text = "%s: no answer within %g s. The pipeline waits for it. If this goes on, %s"
    logging.getLogger("tidegate").warning(text, redacted(place), SECONDS, ADDRESS)
