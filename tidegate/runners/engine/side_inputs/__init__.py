"""Side inputs: views by window, and the operator that waits for them."""
