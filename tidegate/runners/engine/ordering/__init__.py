"""Bounded input presented in timestamp order."""
