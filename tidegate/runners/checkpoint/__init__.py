"""Checkpoints and savepoints as data: what they hold, their files, and how state is matched to the steps of a plan."""
