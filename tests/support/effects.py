"""Side effects of functions that may have been pickled: each writes to this module, which is imported when it runs."""

from __future__ import annotations

noted: list[str] = []
