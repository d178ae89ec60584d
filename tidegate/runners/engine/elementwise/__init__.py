"""Chains of element-wise steps, fused into one generated loop."""
