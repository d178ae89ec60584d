"""Connectors: where pipelines read from and write to, built on sdk/sources.py and sdk/sinks.py alone.

What a connector needs beyond the standard library is imported when it is used.
"""

from typing import Any

from tidegate.io.spark import ReadFromSpark, WriteToSpark
from tidegate.io.text import ReadFromText, ReadFromTextWithFilename, WriteToText

__all__ = ["ReadFromSpark", "ReadFromText", "ReadFromTextWithFilename", "WriteToSpark", "WriteToText"]


def __getattr__(name: str) -> Any:
    from tidegate.sdk.beam_names import IO, no_such

    raise no_such("tidegate.io", "tg.io", name, IO, __all__)
