"""Formats of files: how records are read from each, and written to each."""
