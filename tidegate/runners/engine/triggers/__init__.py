"""Trigger state machines, one for each kind of trigger."""
