"""Blocks of elements, and the values, panes, keys and coders that travel in them."""
