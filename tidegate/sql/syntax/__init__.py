"""The syntax of SQL: parsing, and binding of expressions, in which every argument of every node is read or refused."""
