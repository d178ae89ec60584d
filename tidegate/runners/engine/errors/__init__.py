"""Errors raised by the author's code: which step and line they come from, and how they cross process boundaries."""
