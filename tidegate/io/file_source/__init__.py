"""Files as a source: which ones match, how they are divided, and from where each is read."""
