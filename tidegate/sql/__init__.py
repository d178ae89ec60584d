"""SQL: statements parsed by sqlglot, bound to expressions, and expanded to the steps that authors could apply."""
