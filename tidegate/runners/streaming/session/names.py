"""The names of sessions."""

from __future__ import annotations

from typing import Final

DEFAULT: Final = "default"
"""The name of a session for which none is given."""
