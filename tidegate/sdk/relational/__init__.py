"""Expressions over columns: what authors write, the tree that it becomes, the table of operations, and the back ends."""
