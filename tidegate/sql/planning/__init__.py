"""Planning: from the syntax tree of a query to relations, one step for each operator."""
