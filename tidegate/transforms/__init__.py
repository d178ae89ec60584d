"""The library: composites built from the primitives alone. Runners never see it, only the nodes it leaves behind."""
