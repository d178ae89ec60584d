"""The code that runs in Spark's Python workers."""
