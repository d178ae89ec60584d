"""The operators: the only implementation of the transforms' semantics, shared by all three runners."""
