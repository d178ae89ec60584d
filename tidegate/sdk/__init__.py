"""The authoring API: the vocabulary of all layers, the portable pipeline, and the transforms that become its nodes."""
