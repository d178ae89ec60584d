"""Executes portable pipelines: the plan, the planner, the engine, and the runners that drive it."""
