"""The whole pipeline as plain data: readable as JSON, and all that a runner ever sees."""
