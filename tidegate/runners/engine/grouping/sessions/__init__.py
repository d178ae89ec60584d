"""Groupings in session windows that emit one pane per session."""
