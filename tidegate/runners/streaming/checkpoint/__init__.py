"""Checkpoints beyond a single task: tracking, manifests, recovery, fencing, commits."""
