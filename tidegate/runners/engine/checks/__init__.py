"""Checks of the author's code that `--checks` asks for."""
