"""What turns a portable pipeline into work: the plan, the planner, the engine, and the runners that drive it."""
