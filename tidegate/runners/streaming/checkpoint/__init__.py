"""Checkpoints as the job's process sees them: tracking, manifests, recovery, fencing, commits."""
