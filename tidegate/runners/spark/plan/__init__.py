"""Data that the driver and the workers share: options, levels, task specifications, artifacts."""
