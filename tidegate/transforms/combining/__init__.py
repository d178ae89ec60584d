"""Combiners and sketches."""
