"""Binding of SQL: from the nodes of sqlglot to trees of expressions.

The functions that read nodes are in `operators`, `functions` and `times`. The meaning of a tree is that of the table of
operations, hence Spark's in ANSI mode.
"""

from tidegate.sql.syntax import functions, operators, times
from tidegate.sql.syntax.handlers import HANDLERS, Names, tree_of

__all__ = ["HANDLERS", "Names", "functions", "operators", "times", "tree_of"]
