"""Transforms that group: grouping by fields, co-grouping and joins, batches, deduplication."""
