"""Partitions blocks and encodes them as the rows of a shuffle."""
