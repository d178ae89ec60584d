"""A simulated world for the streaming engine: one process, one thread, one seed."""
