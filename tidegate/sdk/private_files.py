"""Files that only this user may read: state, spilled and exchanged data, and the journals of sessions.

Elements may be confidential wherever they are stored, so these files have mode 0600 under any umask. Output that a
pipeline or a command writes for its author follows the umask instead.
"""

from __future__ import annotations

import os


def owner_only(path: str, flags: int) -> int:
    """An opener for `open` that creates files with mode 0600."""
    return os.open(path, flags, 0o600)
