"""Keyed state: tables, cells, timers, and the form in which operators snapshot them."""
