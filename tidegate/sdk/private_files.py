"""Files that nobody but this user reads: state, what runs spill and exchange, what sessions keep of their jobs.

Elements may be confidential whatever they are kept in, so such files have the mode 0600 under any umask. What a
pipeline writes for its author, and what a command is told to write, follows the umask instead.
"""

from __future__ import annotations

import os


def owner_only(path: str, flags: int) -> int:
    """An opener for `open`: a file that is made here is this user's alone."""
    return os.open(path, flags, 0o600)
