"""Partitioning blocks and encoding them as the rows of a shuffle."""
