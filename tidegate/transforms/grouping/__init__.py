"""Transforms that group: by key, by fields, joins, batches, deduplication."""
