"""`tidegate sql`: runs, explains and prompts for statements in SQL."""
