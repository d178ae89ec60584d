"""The bodies of the author's functions: what may stand in a loop, and as what."""
