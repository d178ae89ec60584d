"""Rows, and DataFrames made of them."""
