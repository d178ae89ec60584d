"""The author's functions: capturing, pickling, inspecting and validating them."""
