"""Stateful DoFns: state cells and timers per key and window."""
