"""Memory estimates, and what to do when the budget is exceeded: spilling to disk and sorting there."""
