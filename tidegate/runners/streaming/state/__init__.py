"""State backends, state files, and restoring tasks from them."""
