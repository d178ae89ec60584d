"""The names of sessions."""

from __future__ import annotations

from typing import Final

DEFAULT: Final = "default"
"""The session that is meant where none is named."""
