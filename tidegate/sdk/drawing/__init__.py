"""Drawings of graphs: layout, SVG and HTML."""
