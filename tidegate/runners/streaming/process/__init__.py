"""The operating-system processes of a job, and how they are started."""
