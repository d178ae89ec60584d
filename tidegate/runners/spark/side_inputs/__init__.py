"""Side inputs as broadcast values and memory-mapped maps."""
