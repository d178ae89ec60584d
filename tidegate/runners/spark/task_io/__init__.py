"""What a task reads and writes: splits, DataFrames, sinks."""
