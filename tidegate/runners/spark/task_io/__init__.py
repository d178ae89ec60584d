"""The inputs and outputs of tasks: splits, DataFrames, sinks."""
