"""Savepoints of unbounded pipelines on Spark: written by the tasks of a batch, and read by those of the first one."""
