"""Sessions: a process that outlives its clients and runs the jobs they submit."""
