"""The back end that computes expressions row by row in Python: it prints them as source, and compiles that once."""
