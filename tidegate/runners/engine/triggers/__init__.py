"""Trigger state machines, one for each trigger an author can write."""
