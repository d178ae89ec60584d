"""What driver and workers both know: options, levels, task specifications, artifacts."""
