"""Writing through a sink's attempts."""
