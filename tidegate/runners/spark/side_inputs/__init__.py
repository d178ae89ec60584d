"""Side inputs as broadcast values or memory-mapped maps."""
