"""The steps of a pipeline: what authors apply, what that appends, and how it is found and removed again."""
