"""Relational steps: how the planner turns them into the nodes that runners execute."""
