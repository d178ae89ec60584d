"""Workers and their tasks: inputs, barriers, sources, snapshots."""
