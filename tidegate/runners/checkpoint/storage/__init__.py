"""Checkpoint storage: local directories and object stores."""
