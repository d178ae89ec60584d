"""What authors write with: the vocabulary, the portable pipeline, and the transforms that become its nodes."""
