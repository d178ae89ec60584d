"""Unbounded pipelines on Spark: levels of the engine's operators under Structured Streaming, in micro-batches."""
