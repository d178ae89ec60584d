"""Element types inferred from annotations, and their compatibility."""
