"""The client of a job: submission, progress, metrics."""
