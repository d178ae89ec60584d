"""The driver's part of a stream on Spark: its start, its query, its checkpoint, and its result."""
