"""Groupings: one pane per window, at the end of bounded input or when the watermark passes the window's end."""
