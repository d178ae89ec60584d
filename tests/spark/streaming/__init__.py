"""Unbounded pipelines on Spark."""
