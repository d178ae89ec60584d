"""The Spark runner, on a local master of two cores that all tests share."""
