"""Blocks of elements, and the values, timestamps, panes, keys and coders of which they consist."""
