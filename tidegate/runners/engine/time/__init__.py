"""Clocks and watermarks."""
