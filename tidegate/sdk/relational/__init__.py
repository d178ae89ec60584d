"""Expressions over columns: what authors write, the tree that it becomes, the operations, and the back ends."""
