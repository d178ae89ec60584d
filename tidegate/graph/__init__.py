"""Graphs: vertices, the edges between them, algorithms over both, and programs of what vertices do in each round."""

from tidegate.graph.edges import Edge
from tidegate.graph.graph import Graph

__all__ = ["Edge", "Graph"]
