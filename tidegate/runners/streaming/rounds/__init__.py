"""Rounds of loops that all workers run: what a worker keeps from one to the next, and what is stored of it."""
