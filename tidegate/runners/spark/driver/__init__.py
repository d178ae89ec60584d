"""The driver's part of a run: session, execution, commits, progress."""
