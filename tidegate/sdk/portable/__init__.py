"""The portable pipeline: a pipeline as plain data, readable as JSON, from which runners execute it."""
