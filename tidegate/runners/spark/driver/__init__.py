"""The code that runs in the driver: session, execution, commits, progress."""
