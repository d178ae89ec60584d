"""Frames, codecs, channels with credit, partitioning and blocking exchanges."""
