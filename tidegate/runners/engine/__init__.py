"""The operators: the one implementation of what a transform means, on blocks. All three runners use it."""
