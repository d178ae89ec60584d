"""Reading the splits of sources, the elements of `Create`, and the events of test streams."""
