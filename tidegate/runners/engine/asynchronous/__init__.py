"""Calls of the author's functions beside the stream: an event loop, threads, and the operator that awaits results."""
