"""Windows, assigners, triggers, evictors, and the strategy that combines them."""
