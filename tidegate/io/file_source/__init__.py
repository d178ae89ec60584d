"""Files of records as a source: which files, how they are divided, and from where each is read."""
